"""Checkpoints of networks along the path of training, read from the disk one at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from murmuration.core.population import Population, population_from_tensors
from murmuration.core.recipe import Recipe
from murmuration.likelihoods import Likelihood
from murmuration.models.nets.source import Net
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.runs import directory as runs
from murmuration.studies.weight_space import Points, points_of
from murmuration.system.devices import CPU
from murmuration.system.errors import Failure, Misuse
from murmuration.training.fitting import load


@dataclass(frozen=True)
class Trajectory:
    """The paths of some members in weight space: their checkpoints in time order, read when they are asked for.

    A member that stopped early or diverged stays where it stopped; `trained` tells such checkpoints.
    """

    points: Points  # the members at the end
    steps: tuple[int, ...]  # of the stored checkpoints, without step 0
    epochs: tuple[float, ...]  # passes over the training examples until then
    read: Callable[[int, int], Tensor]  # member, step -> its weights (P,)
    active: Callable[[int, int], bool] = lambda member, step: True  # member, step -> whether it was still trained
    ensemble_at: Callable[[int], Ensemble] | None = None  # step -> all members then; None of networks from elsewhere

    def __len__(self) -> int:
        """Return the number of checkpoints of a member."""
        return len(self.steps)

    @property
    def members(self) -> int:
        return len(self.points)

    def at(self, member: int, index: int) -> Tensor:
        """Return the weights (P,) float32 of one member at one checkpoint."""
        self._require_member(member)
        if not -len(self) <= index < len(self):
            raise Misuse(f"checkpoint {index} of a trajectory of {len(self)}: the first is 0, the last -1")
        return self.read(member, self.steps[index]).float()

    def vectors(self, member: int, last: int | None = None) -> Iterator[Tensor]:
        """Return the checkpoints (P,) of one member in time order, or the last few of them, one in memory at a time."""
        first = 0 if last is None else max(len(self) - last, 0)
        return (self.at(member, index) for index in range(first, len(self)))

    def start(self, member: int) -> Tensor:
        """Return the initial weights (P,) of one member."""
        self._require_member(member)
        return self.read(member, 0).float()

    def trained(self, member: int) -> list[bool]:
        """Return for each checkpoint whether the member was still trained after it, not stopped or diverged."""
        self._require_member(member)
        return [self.active(member, step) for step in self.steps]

    def _require_member(self, member: int) -> None:
        if not 0 <= member < self.members:
            raise Misuse(f"member {member} of a trajectory of {self.members}: the first is 0")


def open_trajectory(
    run: str | Path, *, net: Net | None = None, recipe: Recipe | None = None, likelihood: Likelihood | None = None
) -> Trajectory:
    """Open the trajectory of a finished run that was trained with `trajectory=` (`--trajectory`).

    The points at the end are the members of the ensemble, in their order. If a run has several members on one path
    (SWAG, snapshots), they are the networks at the last checkpoint, one for each path.

    Args:
        run: Run directory.
        net: Network of the run, if it is user-defined, as in `load`.
        recipe: Recipe of the run, if it is user-defined.
        likelihood: Likelihood of the run, if it is user-defined.

    Returns:
        The trajectory, whose checkpoints are read when needed.

    Raises:
        Misuse: If the run has no trajectory.
    """
    path = Path(run)
    ensemble = load(path, net=net, recipe=recipe, likelihood=likelihood, posthoc=False, device=CPU)
    stored = path_steps(path)
    if not stored:
        raise Misuse(f"{path} has no trajectory: train it with trajectory='every-epoch' (--trajectory every-epoch)")
    origins, per_epoch = ensemble.manifest.rows(ensemble.members), ensemble.manifest.steps_per_epoch or 1
    steps = tuple(step for step in stored if step > 0)

    def network(row: int, step: int) -> Points:
        population, _ = load_path_point(path, step, row)
        group, own = ensemble.groups[0], dict(population.own)
        own |= {name: t for name, t in population.fixed.items() if len(group.population.fixed[name]) > 1}
        member = replace(population, own=own, fixed={n: t for n, t in population.fixed.items() if n not in own})
        return points_of(replace(ensemble, groups=(MemberGroup(group.module, member),)))

    rows = sorted(set(origins))
    if len(rows) == len(origins):
        rows, points = origins, points_of(ensemble)
    else:
        points = joined([network(row, steps[-1]) for row in rows])

    def ensemble_at(step: int) -> Ensemble:
        population = load_population(path, step, ensemble.groups[0].population.members)
        return replace(ensemble, groups=(replace(ensemble.groups[0], population=population),))

    return Trajectory(
        points,
        steps,
        tuple(step / per_epoch for step in steps),
        lambda member, step: network(rows[member], step).vectors[0],
        lambda member, step: load_path_point(path, step, rows[member])[1],
        ensemble_at,
    )


def find_trajectory(run: str | Path, *, net: Net | None = None) -> Trajectory | None:
    """Return the trajectory of a finished run, or None if it was trained without one."""
    return open_trajectory(run, net=net) if runs.stored_steps(Path(run)) else None


def trajectory_of(checkpoints: Sequence[Sequence[nn.Module]], start: Sequence[nn.Module] | None = None) -> Trajectory:
    """Make a trajectory of networks trained elsewhere.

    Args:
        checkpoints: Networks `checkpoints[member][time]`, equally many of each member.
        start: Initial networks of the members, if known.

    Returns:
        The trajectory.

    Raises:
        Misuse: For paths of different lengths, or without checkpoints.

    >>> trajectory_of([[nn.Linear(4, 3) for _ in range(5)] for _ in range(2)]).at(1, -1).shape
    torch.Size([15])
    """
    lengths = {len(path) for path in checkpoints}
    if len(lengths) != 1 or 0 in lengths:
        raise Misuse(f"paths of {sorted(lengths)} checkpoints: need at least one member, and equally many of each")
    points = points_of(Ensemble.from_models([path[-1] for path in checkpoints]))

    def read(member: int, step: int) -> Tensor:
        if step == 0 and start is None:
            raise Misuse("the initial networks of this trajectory are not known: give them as start=[net, ...]")
        net = checkpoints[member][step - 1] if step or start is None else start[member]
        return points.space.flatten({name: t.detach().unsqueeze(0) for name, t in net.named_parameters()})[0]

    steps = tuple(range(1, lengths.pop() + 1))
    return Trajectory(points, steps, tuple(map(float, steps)), read)


def joined(points: Sequence[Points]) -> Points:
    """Return points of one weight space together."""
    buffers = {name: torch.cat([part.buffers[name] for part in points]) for name in points[0].buffers}
    return replace(points[0], vectors=torch.cat([part.vectors for part in points]), buffers=buffers)


def path_steps(path: Path) -> list[int]:
    """Return the steps of the trajectory of a complete run, in order, after a check of all its files."""
    manifest = runs.read_run(path)
    points = [runs.require_unchanged(path, manifest, n) for n in manifest.files if n.startswith(f"{runs.TRAJECTORY}/")]
    return sorted(int(file.stem.partition("-")[2]) for file in points)


def load_path_point(path: Path, step: int, row: int) -> tuple[Population, bool]:
    """Read one member at one checkpoint of the trajectory, and whether it was still trained then.

    No more than that member and the shared tensors are read from the file.
    """
    file = path / runs.TRAJECTORY / runs.step_file(step)
    try:
        with safe_open(str(file), framework="pt") as stored:
            names = list(stored.keys())
            unsliced = {n for n in names if n.startswith("shared/") or stored.get_slice(n).get_shape()[:1] == [1]}
            tensors = {name: stored.get_tensor(name) for name in unsliced}
            tensors |= {name: stored.get_slice(name)[row : row + 1] for name in names if name not in unsliced}
    except (SafetensorError, OSError, ValueError) as error:
        raise Failure(f"{file} is not a readable checkpoint: {error}") from error
    active = bool(tensors.pop(runs.ACTIVE))
    return single_precision(population_from_tensors(tensors, 1)), active


def load_population(path: Path, step: int, members: int) -> Population:
    """Read all members at one checkpoint of the trajectory."""
    file = path / runs.TRAJECTORY / runs.step_file(step)
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise Failure(f"{file} is not a readable checkpoint: {error}") from error
    if len(tensors.pop(runs.ACTIVE)) != members:
        raise Misuse(f"{path}: the members of the run are not those of its trajectory, so draws along it are not known")
    return single_precision(population_from_tensors(tensors, members))


def single_precision(population: Population) -> Population:
    """Return the population with tensors that were stored in half precision as float32."""
    return population.map(lambda t: t.float() if t.dtype == torch.float16 else t)
