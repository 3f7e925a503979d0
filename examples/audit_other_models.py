"""Models trained elsewhere: a random forest and a gradient-boosted model write what they predict, murmur audits it.

python examples/audit_other_models.py
murmur audit forest.csv
murmur audit forest.csv boosting.csv --group size
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split

from murmuration.evaluation.audit import evaluate_predictions, open_predictions

MODELS = {"forest": RandomForestClassifier(random_state=0), "boosting": HistGradientBoostingClassifier(random_state=0)}


def write_predictions(folder: Path) -> list[Path]:
    """One CSV a model: a probability for each class, what was true, and a column of groups."""
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    learn, ask, known, truth = train_test_split(x, y, test_size=0.5, random_state=0, stratify=y)
    size = np.where(ask["mean radius"] > 14, "large", "small")
    paths = []
    for name, model in MODELS.items():
        probs = model.fit(learn, known).predict_proba(ask)
        table = pd.DataFrame({"prob_0": probs[:, 0], "prob_1": probs[:, 1], "label": truth.to_numpy(), "size": size})
        paths.append(folder / f"{name}.csv")
        table.to_csv(paths[-1], index=False)
    return paths


def main(quick: bool = False) -> dict[str, float]:
    """Write the files (into this folder, unless quick) and say what an audit finds first."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = write_predictions(Path(scratch) if quick else Path())
        found = {path.stem: evaluate_predictions(open_predictions(path, groups=["size"])) for path in paths}
    for name, each in found.items():
        worse = [group.value for group in each.groups["size"] if group.worse]
        print(f"{name}: NLL {each.scores['nll']!r}, worse for {' and '.join(worse) or 'no group'}")
    return {name: float(each.scores["nll"]) for name, each in found.items()}


if __name__ == "__main__":
    main()
