"""One pass over predictions: evaluated as they come, and as the run's post-hoc steps change them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from murmuration.data import Split
from murmuration.ensemble import STREAM, Ensemble
from murmuration.metrics import Evaluation
from murmuration.metrics.evaluation import Gathering
from murmuration.posthoc.fit import PostHoc
from murmuration.predictive import Predictive


@dataclass(frozen=True, eq=False)
class Examined:
    """The evaluation of predictions as members made them, and after the calibrator.

    Where there are post-hoc steps, the columns of both also say of each example whether it lies in each rule's set, how
    large that set is, and whether the question would be answered: all three after the calibrator.
    """

    plain: Evaluation
    guarded: Evaluation | None = None

    def view(self, applied: bool) -> Evaluation:
        """The evaluation after the calibrator if it is applied and there is one, else the plain one."""
        return self.guarded if applied and self.guarded is not None else self.plain


def examine(chunks: Iterable[tuple[Predictive, Any]], guard: PostHoc | None = None) -> Examined:
    """The evaluations of pairs (predictive, y) that come one after another and are not kept."""
    plain, guarded = Gathering(), Gathering()
    for pred, y in chunks:
        if guard is None:
            plain.add(pred, y)
            continue
        changed = guard.calibrated(pred)
        kept = guard.per_example(changed, y, first=plain.inputs)
        plain.add(pred, y, kept)
        if changed is not pred:
            guarded.add(changed, y, kept)
    found = plain.evaluation()
    return Examined(found, guarded.evaluation() if guarded.inputs else None)


def answers(ensemble: Ensemble, split: Split) -> Iterator[tuple[Predictive, Tensor]]:
    """Pairs (predictive, y) of a few examples at a time, in order, as members make them."""
    yield from zip(ensemble.stream(split.x, calibrated=False), split.y.split(STREAM), strict=True)
