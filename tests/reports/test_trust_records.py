"""Records of trust refuse what cannot be."""

from collections.abc import Callable

import pytest

from murmuration.errors import Misuse
from murmuration.reports import Reliability
from murmuration.reports.trust_records import Detection, Group, Recalibrated, Sets, Shift, ShiftPoint, Trust

SCORE = (0.5, 0.4, 0.6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShiftPoint("fog", 0, {}), r"severity 0 of 'fog'; give a whole number from 1 to 5 \(the clean"),
        (lambda: ShiftPoint("fog", 1, {"nll": 0.1}), "score 'nll' of 'fog, severity 1' is 0.1; give"),  # type: ignore[dict-item]
        (
            lambda: Shift("", {}, (ShiftPoint("fog", 1, {}), ShiftPoint("fog", 1, {})), {}, {}),
            "point of a shift 'fog, 1' is given twice",
        ),
        (lambda: Sets("aps", 90, "test", SCORE, SCORE), "level 90 of 'aps'; give a probability between 0 and 1"),
        (
            lambda: Recalibrated("test", {}, {}, Reliability([1], [1]), Reliability([1], [1], kind="quantile")),
            "on 'test' is of kind 'confidence' before and 'quantile' after; give one kind",
        ),
        (lambda: Trust(groups=(Group("a", "b", 1, {}),) * 2), "group 'a, b' is given twice"),
        (lambda: Detection(SCORE, SCORE, 0.5), "score 'fpr95' of 'detection' is 0.5"),  # type: ignore[arg-type]
    ],
)
def test_records_of_trust_refuse_what_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        make()
