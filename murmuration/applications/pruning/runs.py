"""A trained run, pruned into a run of its own: the old one stays as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.applications.pruning.compact import compacted, require_same
from murmuration.applications.pruning.counting import counts_of, layers_of, sparsity_of
from murmuration.applications.pruning.curve import Point, Show, curve_of, farthest, scores_on, with_population, written
from murmuration.applications.pruning.masks import pruned
from murmuration.applications.pruning.rules import RULES, Pruning
from murmuration.carrying import CHECKPOINT_SECONDS, SWEEP, Desk, carry_out, say_nothing, with_posthoc
from murmuration.carrying import Show as Watch
from murmuration.data import Data
from murmuration.ensemble import Ensemble, MemberGroup
from murmuration.errors import Misuse
from murmuration.fitting import load, narrow_source, reopen, source_again
from murmuration.nets.source import Net, NetSource
from murmuration.population import Population
from murmuration.provenance import describe
from murmuration.recipe import plan_from_json
from murmuration.runs import MANIFEST, create_run, finite, read_run, require_free, save_checkpoint, write_json
from murmuration.training import Job
from murmuration.training.loop import before_first_step
from murmuration.weights import Outline, outline_of

TOLERANCE = 0.01
TRIED = 8  # inputs on which a smaller network must predict as before


@dataclass(frozen=True)
class Prospect:
    """A run about to be pruned: how far, and how well it would do without further training."""

    run: Path
    ensemble: Ensemble
    data: Data
    source: NetSource
    outline: Outline
    pruning: Pruning
    curve: Sequence[Point]
    chosen: bool  # whether validation examples decided how far

    @property
    def population(self) -> Population:
        return self.ensemble.groups[0].population


def prospect(
    run: str | Path,
    pruning: Pruning | None = None,
    *,
    tolerance: float = TOLERANCE,
    net: Net | None = None,
    data: Any = None,
    show: Show = lambda text, done, total: None,
) -> Prospect:
    """What pruning a run would do to it, on its validation examples; without a sparsity or threshold these choose.

    They allow the largest sparsity at which accuracy falls by no more than `tolerance`, or RMSE grows by no more than
    that part. The rule log-alpha has a usual threshold of its own. A run on a network or tensors of the caller's own
    needs them again as `net` and `data`.
    """
    ensemble, asked = load(run, net=net, guarded=False), pruning or Pruning()
    opened, module = reopen(ensemble.manifest, data), ensemble.groups[0].module
    outline = outline_of(module, opened.train.x[:2])
    curve = curve_of(ensemble, outline, opened.val, asked, show) if len(opened.val) else []
    open_end = asked.sparsity is None and asked.threshold is None
    usual = None if asked.structured else RULES[asked.rule].usual
    chosen = open_end and usual is None
    if chosen and not curve:
        raise Misuse(f"{run} has no validation examples to choose a sparsity by: give one, such as sparsity 0.8")
    if chosen:
        asked = replace(asked, sparsity=farthest(curve, tolerance))
        if not asked.sparsity:
            raise Misuse(
                f"tolerance={tolerance}: more is lost on validation examples at sparsity {curve[1].asked:g} already;"
                " give a larger tolerance, or a sparsity and fine-tune"
            )
    elif open_end:
        asked = replace(asked, threshold=usual)
    return Prospect(Path(run), ensemble, opened, source_again(ensemble.manifest, net), outline, asked, curve, chosen)


def prune(
    found: Prospect,
    out: str | Path,
    *,
    finetune: int = 0,
    lr: float | None = None,
    compact: bool = False,
    show: Watch = say_nothing,
) -> Ensemble:
    """The pruned ensemble, written as a new run, after so many epochs of further training by the run's own recipe.

    `compact` leaves removed channels out of the network instead of holding them at zero.
    """
    require_free(Path(out))
    check_request(found.pruning, finetune=finetune, lr=lr, compact=compact)
    ensemble, source = found.ensemble, found.source
    if finetune and ensemble.recipe.shares.frozen != "no":
        raise Misuse("finetune of a run on a frozen backbone: its body would have to move; leave finetune out")
    population = pruned(found.population, ensemble.recipe.weighs, found.outline, found.pruning)
    record = record_of(found, population, finetune)
    if compact:
        source, population = compact_source(found, population)
        record["compact"] = counts_of(population).to_json()
    job = job_of(found, source, population, finetune, lr)
    manifest = {**describe(job, source, ensemble.engine, "as before"), "gamma": job.gamma, "pruning": record}
    if not finetune:
        manifest = {**ensemble.manifest, **manifest}
        groups = (MemberGroup(job.member(0), population),)
        made = with_posthoc(replace(ensemble, groups=groups, manifest=manifest, posthoc=None), job, show)
        made.save(out)
        return made
    return finetuned(found, job, population, manifest, Desk(out, show, CHECKPOINT_SECONDS))


def compact_source(found: Prospect, population: Population) -> tuple[NetSource, Population]:
    """Where the smaller networks come from that are left of these members, and the members; tried on some inputs."""
    ensemble = found.ensemble
    widths, fewer = compacted(ensemble.groups[0].module, population, found.outline)
    source = narrow_source(found.source, widths)
    small = replace(ensemble, groups=(MemberGroup(source.build(), fewer),))
    require_same(with_population(ensemble, population).member(0), small.member(0), found.data.train.x[:TRIED])
    return source, fewer


def check_request(pruning: Pruning, *, finetune: int, lr: float | None, compact: bool) -> None:
    """Refuse what cannot be for any run."""
    if finetune < 0:
        raise Misuse(f"finetune={finetune}: need a number of epochs that is not negative")
    if lr is not None and not finetune:
        raise Misuse(f"lr={lr} without finetune: nothing is trained; give the epochs too")
    if compact and not pruning.structured:
        raise Misuse("compact without structured: single weights leave no channel to take out; add structured")


def job_of(found: Prospect, source: NetSource, population: Population, finetune: int, lr: float | None) -> Job:
    """The job of training the members further; without further training, the job that made them."""
    ensemble, plan = found.ensemble, plan_from_json(found.ensemble.manifest["plan"])
    assert ensemble.likelihood is not None  # runs always say what their outputs mean
    if finetune:
        plan = replace(plan, epochs=finetune, lr=plan.lr if lr is None else lr, members=population.members)
    gamma = ensemble.manifest.get("gamma")
    return Job(source.build, found.data, ensemble.likelihood, ensemble.recipe, plan, gamma=gamma)


def finetuned(found: Prospect, job: Job, population: Population, manifest: dict[str, Any], desk: Desk) -> Ensemble:
    """The ensemble after further training; killed on the way, the run can be resumed."""
    out = Path(str(desk.out))
    desk.made = create_run(out, manifest)
    if "sweep" in found.ensemble.manifest:  # what was chosen once is not chosen again
        write_json(out / SWEEP, found.ensemble.manifest["sweep"])
    progress = before_first_step(job, population.map(lambda tensor: tensor.to(job.plan.device)))
    save_checkpoint(out, progress)
    done = carry_out(job, job, found.ensemble.engine, progress, manifest, desk)
    if not len(found.data.val):
        return done
    record = {**done.manifest["pruning"], "finetuned": finite(written(scores_on(done, found.data.val)))}
    write_json(out / MANIFEST, {**read_run(out), "pruning": record})
    return replace(done, manifest={**done.manifest, "pruning": record})


def record_of(found: Prospect, population: Population, finetune: int) -> dict[str, Any]:
    """What the manifest of a pruned run says of its pruning."""
    record: dict[str, Any] = {
        "of": str(found.run),
        **found.pruning.to_json(),
        "chosen": found.chosen,
        "finetune": finetune,
        "reached": sparsity_of(population, found.outline),
        "counts": counts_of(population).to_json(),
        "layers": layers_of(population, found.outline),
        "curve": [finite(point.to_json()) for point in found.curve],
    }
    if found.curve:
        record["pruned"] = finite(written(scores_on(with_population(found.ensemble, population), found.data.val)))
    return record
