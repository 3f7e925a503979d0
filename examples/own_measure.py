"""A measure of your own: computed with all scores, shown in the report's table, and explained there.

python examples/own_measure.py
"""

import tempfile
from pathlib import Path

import numpy as np

import murmuration as mm

COSTS = np.array([[0.0, 10.0], [1.0, 0.0]])  # [true, predicted]; class 0 is malignant, and missing it costs 10


def expected_cost(columns: dict[str, np.ndarray]) -> np.ndarray:
    """The cost (N,) of each prediction; columns hold one value per test example."""
    return COSTS[columns["label"], columns["predicted"]]


MISTAKES = mm.Measure(
    name="cost",
    label="Cost",
    meaning="Mean cost of a prediction: 10 for a missed malignant tumour, 1 for a false alarm.",
    values=expected_cost,
    better="lower",
    bounds=(0.0, 10.0),
    shown=("summary", "table", "brief"),
)


def main(quick: bool = False) -> dict[str, float]:
    mm.add_measure(MISTAKES)
    try:
        data = mm.open_data("breast-cancer")
        ensemble = mm.fit("mlp", data, members=2 if quick else 5, epochs=3 if quick else 30)
        cost = mm.score(ensemble.predict(data.test.x), data.test.y)["cost"]
        print(f"cost of a prediction: {cost:.3f}, 95 % interval {cost.low:.3f} to {cost.high:.3f}")
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            mm.report(ensemble, data, page)
            text = page.read_text()
        print(f"the report explains it: {MISTAKES.meaning in text}")
        return {"cost": float(cost), "low": cost.low, "high": cost.high, "explained": float(MISTAKES.meaning in text)}
    finally:
        mm.remove_measure(MISTAKES)  # a program would keep it; a test should leave nothing behind


if __name__ == "__main__":
    main()
