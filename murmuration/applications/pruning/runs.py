"""Pruning of a run into a new run, which leaves the old one as it is, and validation scores against sparsity.

The test split is not used: a sparsity chosen on it would look better than it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import murmuration.applications.pruning.masks as masks
from murmuration.applications.pruning.compact import compact_population, require_same_outputs
from murmuration.applications.pruning.narrow import narrow_source
from murmuration.core.population import Population
from murmuration.core.weights import KernelTrace, trace_kernels
from murmuration.data import Data, Split
from murmuration.evaluation.metrics import MEASURES, Score, score_examples
from murmuration.models.nets.source import Net, NetSource
from murmuration.prediction.ensemble import Ensemble, MemberGroup
from murmuration.runs.directory import SWEEP, check_new, create_run, locked, new_run, read_run, write_manifest
from murmuration.runs.manifest import Manifest
from murmuration.system.devices import CPU
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json
from murmuration.training import TrainSpec, fitting
from murmuration.training.loop import start_from
from murmuration.training.plan import plan_from_json
from murmuration.training.run import ProgressCallback, run_training, save_first_weights, with_posthoc

LEVELS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
EXAMPLES = 2000  # at most, for the curve
DRAWS = 10  # of a member whose predictions are random
MAIN = {"classification": "accuracy", "multi-label": "accuracy", "regression": "rmse"}

Show = Callable[[str, int, int], None]
TOLERANCE = 0.01
TRIED = 8  # inputs on which a compact network must have the same outputs


@dataclass(frozen=True)
class CurvePoint:
    """Validation scores at one sparsity."""

    asked: float  # fraction of weights, or of channels, to be removed; rises along the curve
    sparsity: float  # fraction of kernel weights that is removed
    nonzero: int  # parameters
    scores: dict[str, Score]  # accuracy or rmse, and nll

    def to_json(self) -> dict[str, Any]:
        return {"asked": self.asked, "sparsity": self.sparsity, "nonzero": self.nonzero, **self.scores}


def with_population(ensemble: Ensemble, population: Population) -> Ensemble:
    """Return the ensemble with other weights, and without the post-hoc steps that were fitted to the old ones."""
    return replace(ensemble, groups=(replace(ensemble.groups[0], population=population),), posthoc=None)


def validation_scores(ensemble: Ensemble, split: Split) -> dict[str, Score]:
    """Return accuracy or RMSE, and NLL, on the first examples of a split."""
    task = ensemble.manifest.data["task"]
    x, y = split.prepared[:EXAMPLES], split.y[:EXAMPLES]
    pred = ensemble.predict(x, draws=DRAWS if ensemble.family.stochastic else None, calibrated=False, prepared=True)
    return score_examples(pred, y).scores(measures={name: MEASURES[task][name] for name in (MAIN[task], "nll")})


def sparsity_curve(
    ensemble: Ensemble, trace: KernelTrace, split: Split, pruning: masks.Pruning, show: Show
) -> list[CurvePoint]:
    """Return scores at increasing sparsities, each pruned from the given ensemble, without fine-tuning."""
    population, curve = ensemble.groups[0].population, []
    for turn, level in enumerate(LEVELS):
        show(f"{level:.0%}", turn, len(LEVELS))
        pruned, settings = population, replace(pruning, sparsity=level, threshold=None)
        if level:
            pruned = masks.prune_population(population, ensemble.recipe.weights, trace, settings)
        scores = validation_scores(with_population(ensemble, pruned), split)
        nonzero = masks.count_parameters(pruned).nonzero
        curve.append(CurvePoint(level, masks.sparsity_of(pruned, trace), nonzero, scores))
    return curve


def largest_sparsity(curve: Sequence[CurvePoint], tolerance: float) -> float:
    """Return the largest sparsity up to which validation accuracy falls by no more than the tolerance at every level.

    For regression: up to which RMSE rises by no more than that fraction.
    """
    if not 0 <= tolerance < 1:
        raise Misuse(f"tolerance={tolerance}: need a fraction of at least 0 and below 1, such as 0.01")
    within = takewhile(lambda point: score_loss(curve[0], point) <= tolerance + 1e-9, curve)  # accuracies are rounded
    return max((point.asked for point in within), default=0.0)


def score_loss(dense: CurvePoint, point: CurvePoint) -> float:
    """Return the loss of accuracy, or the relative increase of RMSE."""
    if "accuracy" in dense.scores:
        return float(dense.scores["accuracy"]) - float(point.scores["accuracy"])
    return float(point.scores["rmse"]) / max(float(dense.scores["rmse"]), 1e-30) - 1


@dataclass(frozen=True)
class PruningPlan:
    """A run to be pruned, the settings, and validation scores against sparsity without fine-tuning."""

    run: Path
    ensemble: Ensemble
    data: Data
    source: NetSource
    trace: KernelTrace
    pruning: masks.Pruning
    curve: Sequence[CurvePoint]
    chosen: bool  # whether validation examples chose the sparsity


def plan_pruning(
    run: str | Path,
    pruning: masks.Pruning | None = None,
    *,
    tolerance: float = TOLERANCE,
    net: Net | None = None,
    data: Any = None,
    show: Show = lambda text, done, total: None,
) -> PruningPlan:
    """Score a run against sparsity on its validation examples, and choose the sparsity to prune to.

    Args:
        run: Run directory.
        pruning: Settings; without a sparsity or threshold, the largest sparsity within the tolerance is taken.
        tolerance: Largest loss of the validation score, when the sparsity is chosen.
        net: Network of the run, if it is user-defined.
        data: Data of the run, if it was given as arrays.
        show: Progress callback `show(text, done, total)`.

    Returns:
        The plan, for `prune`.

    Raises:
        Misuse: If a sparsity must be chosen and the run has no validation examples, or none is within the tolerance.
    """
    ensemble, request = fitting.load(run, net=net, posthoc=False, device=CPU), pruning or masks.Pruning()
    opened = fitting.reopen(read_run(Path(run)), data, Path(run))
    trace = trace_kernels(ensemble.groups[0].module, opened.train.prepared[:2])
    curve = sparsity_curve(ensemble, trace, opened.val, request, show) if len(opened.val) else []
    if request.sparsity is None and request.threshold is None and not request.structured:
        request = replace(request, threshold=masks.RULES[request.rule].usual)
    by_validation = request.sparsity is None and request.threshold is None
    if by_validation:
        if not curve:
            raise Misuse(f"{run} has no validation examples to choose a sparsity by: give one, such as sparsity 0.8")
        request = replace(request, sparsity=largest_sparsity(curve, tolerance))
        if not request.sparsity:
            lost = f"more is lost on validation examples at sparsity {curve[1].asked:g} already"
            raise Misuse(f"tolerance={tolerance}: {lost}; give a larger tolerance, or a sparsity and fine-tune")
    source = fitting.source_again(ensemble.manifest, net)
    return PruningPlan(Path(run), ensemble, opened, source, trace, request, curve, by_validation)


def prune(
    planned: PruningPlan,
    out: str | Path,
    *,
    finetune: int = 0,
    lr: float | None = None,
    compact: bool = False,
    device: str | None = None,
    show: fitting.Show = fitting.show_nothing,
    checkpoint_seconds: float = fitting.CHECKPOINT_SECONDS,
) -> Ensemble:
    """Prune a run and write the result as a new run.

    Args:
        planned: Result of `plan_pruning`.
        out: New run directory.
        finetune: Epochs of training with the run's recipe; pruned weights stay zero.
        lr: Learning rate of fine-tuning; by default that of the run.
        compact: Whether to rebuild a smaller network without the removed channels.
        device: Device of fine-tuning; by default that of the run.
        show: Progress callback.
        checkpoint_seconds: Seconds between checkpoints of fine-tuning.

    Returns:
        The pruned ensemble.

    Raises:
        Misuse: For settings that do not fit together, or an existing run directory.
    """
    check_new(out)
    check_request(planned.pruning, finetune=finetune, lr=lr, compact=compact)
    ensemble, source = planned.ensemble, planned.source
    if finetune and ensemble.recipe.sharing.frozen:
        raise Misuse("finetune of a run on a frozen backbone: its body would have to move; leave finetune out")
    dense, weights = ensemble.groups[0].population, ensemble.recipe.weights
    population = masks.prune_population(dense, weights, planned.trace, planned.pruning)
    record = record_of(planned, population, finetune)
    if compact:
        source, population = compact_source(planned, population)
        before = record["counts"]["numbers_before"]
        record |= {"compact": True, "counts": {**asdict(masks.count_parameters(population)), "numbers_before": before}}
    recipe, plan = ensemble.recipe, plan_from_json(ensemble.manifest.plan, device=device if finetune else CPU)
    if finetune:
        recipe = replace(recipe, weights=weights.without_warmup())  # it starts from a trained posterior
        plan = replace(plan, epochs=finetune, lr=plan.lr if lr is None else lr, members=population.members)
    assert ensemble.likelihood is not None  # runs always say what their outputs mean
    gamma = ensemble.manifest.gamma
    spec = TrainSpec(source.build, planned.data, ensemble.likelihood, recipe, plan, gamma=gamma)
    if not finetune:
        described = fitting.describe(spec, source, ensemble.engine, "as before")
        parameters = spec.roles(population).to_json()
        changed = described.to_json() | {"plan": ensemble.manifest.plan, "gamma": gamma, "parameters": parameters}
        manifest = with_entry(replace(ensemble.manifest, **changed), record)
        groups = (MemberGroup(spec.member(0), population),)
        plain = replace(ensemble, groups=groups, manifest=manifest, posthoc=None, preparation=planned.data.preparation)
        pruned = with_posthoc(plain, spec.data, spec.plan)
        pruned.save(out)
        return pruned
    sweep = ensemble.manifest.sweep
    files = {SWEEP: sweep} if sweep else {}  # a coupling chosen on validation data is not chosen again
    manifest = fitting.describe(spec, source, ensemble.engine, "as before")
    manifest = replace(manifest, gamma=gamma, parameters=spec.roles(population).to_json())
    path, progress = Path(out), start_from(spec, population.to(spec.plan.device))
    with new_run(path):
        first = partial(save_first_weights, path, spec, progress, files)
        create_run(path, with_entry(manifest, record), spec.data.preparation, first)
        callback = ProgressCallback(path, show, checkpoint_seconds, new=True)
        done = run_training(spec, spec, ensemble.engine, progress, with_entry(manifest, record), callback)
    return with_finetuned_scores(path, done, planned.data)


def with_entry(manifest: Manifest, record: dict[str, Any]) -> Manifest:
    """Return the manifest with the record of pruning."""
    return replace(manifest, entries={**manifest.entries, "pruning": record})


def compact_source(planned: PruningPlan, population: Population) -> tuple[NetSource, Population]:
    """Return the source of compact networks, and the members in them; outputs are compared on some inputs."""
    ensemble = planned.ensemble
    widths, fewer = compact_population(ensemble.groups[0].module, population, planned.trace)
    source, wide = narrow_source(planned.source, widths), with_population(ensemble, population)
    small = replace(ensemble, groups=(MemberGroup(source.structure(), fewer),))
    require_same_outputs(wide.member(0), small.member(0), planned.data.train.prepared[:TRIED])
    return source, fewer


def check_request(pruning: masks.Pruning, *, finetune: int, lr: float | None, compact: bool) -> None:
    """Refuse settings that fit no run."""
    if finetune < 0:
        raise Misuse(f"finetune={finetune}: need a number of epochs that is not negative")
    if lr is not None and not finetune:
        raise Misuse(f"lr={lr} without finetune: nothing is trained; give the epochs too")
    if compact and not pruning.structured:
        raise Misuse("compact without structured: single weights leave no channel to take out; add structured")


def with_finetuned_scores(run: Path, ensemble: Ensemble, data: Any) -> Ensemble:
    """Add the validation scores of the fine-tuned ensemble to the run's record, if there are validation examples."""
    before = ensemble.manifest.entries["pruning"]
    if not before["finetune"] or "finetuned" in before:
        return ensemble
    opened = fitting.reopen(ensemble.manifest, data, run)
    if not len(opened.val):
        return ensemble
    record = {**before, "finetuned": plain_json(validation_scores(ensemble, opened.val))}
    with locked(run):
        write_manifest(run, with_entry(read_run(run), record))
    return replace(ensemble, manifest=with_entry(ensemble.manifest, record))


def record_of(planned: PruningPlan, population: Population, finetune: int) -> dict[str, Any]:
    """Return the entry `pruning` of a pruned run's manifest."""
    record: dict[str, Any] = {"of": str(planned.run), **planned.pruning.to_json()}
    record |= {"chosen": planned.chosen, "finetune": finetune}
    record |= {"reached": masks.sparsity_of(population, planned.trace)}
    record |= {"counts": asdict(masks.count_parameters(population))}
    record |= {"layers": masks.layer_densities(population, planned.trace), "curve": plain_json(planned.curve)}
    if planned.curve:
        pruned = with_population(planned.ensemble, population)
        record["pruned"] = plain_json(validation_scores(pruned, planned.data.val))
    return record
