"""The table of recipes: what each is for, what it costs and what it gained, all from the committed records.

Costs are those of one network; M is the number of members. Gains are differences of the NLL to the deep ensemble of the
same seed, with the 95 % t-interval of their mean over seeds; bold where it leaves out 0.
"""

import json
import math
from pathlib import Path
from typing import Any

from table_text import head, mean_interval

from murmuration.core.recipe import PRESETS, Recipe

RESULTS = Path(__file__).parent / "results"
REFERENCE = "deep-ensemble"
ALIASES = {"forde-pca": "forde"}  # names of recipes in records
QUALITY = {  # record -> its data; at equal gradient steps a single network is trained as many steps as all members
    "repulsion-mnist": "MNIST",
    "repulsion-cifar10": "CIFAR-10",
    "embedded-digits": "digits",
    "embedded-mnist": "MNIST",
    "dynamics-digits": "digits †",
    "dynamics-cifar10": "CIFAR-10 †",
}
STEPS = {"bayes": "local", "bayes-flipout": "flipout", "ivon": "draw"}  # recipe -> its row of the record of steps

UNMEASURED = ("rank1-bnn", "bayes-last-layer", "ride", "sade")  # whose steps no record has


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def recipes_table() -> str:
    """A row a recipe, the default in bold."""
    lines = head(["recipe", "good for", "against it", "training", "stored", "passes", "NLL - DE", "corrupted NLL - DE"])
    gains = {part: gains_of(part) for part in ("clean", "corrupted")}
    for name, row in PRESETS.items():
        if name in ALIASES:
            continue
        shown = f"**`{name}`**, the default" if name == REFERENCE else f"`{name}`"
        measured = ["; ".join(gains[part].get(name, [])) for part in gains]
        cells = [shown, row.good, row.bad, training(name, row.value), stored(name, row.value), passes(row.value)]
        lines.append(f"| {' | '.join([*cells, *(measured if name != REFERENCE else ['0', '0'])])} |")
    return "\n".join(lines)


def gains_of(part: str) -> dict[str, list[str]]:
    """For each recipe the differences to the deep ensemble that were measured, one text a record."""
    found: dict[str, list[str]] = {}
    for record, data in QUALITY.items():
        values: dict[str, dict[int, float]] = {}
        for run in read(record)["runs"]:
            scores = run.get(part, run if part == "clean" else {})
            if "nll" in scores:
                name = run.get("method") or run["recipe"]
                values.setdefault(ALIASES.get(name, name), {})[run["seed"]] = scores["nll"]
        reference = values.pop(REFERENCE, {})
        for name, seeds in values.items():
            differences = [nll - reference[seed] for seed, nll in seeds.items() if seed in reference]
            found.setdefault(name, []).append(f"{data} {difference(differences)}")
    return found | ({"bayes": bayes_gains()} if part == "clean" else {})


def bayes_gains() -> list[str]:
    """Gaussian weights against deterministic ones of one network, one run each."""
    texts = []
    for path in sorted(RESULTS.glob("bayes-run-*-distributions.json")):
        other = path.with_name(path.name.replace("distributions", "numbers"))
        if other.exists():
            gaussian, point = (json.loads(each.read_text())["metrics"]["nll"]["value"] for each in (path, other))
            data, net = path.stem.removeprefix("bayes-run-").split("-")[:2]
            texts.append(f"{data} {net} ‡ {signed(gaussian - point)}")
    return texts


def difference(values: list[float]) -> str:
    """The mean with half the width of its interval; bold where the interval leaves out 0."""
    mean, low, high = mean_interval(values)
    text = f"{signed(mean)} ± {(high - low) / 2:.3f}" if math.isfinite(low) else signed(mean)
    return f"**{text}**" if low > 0 or high < 0 else text


def signed(value: float) -> str:
    """The number with three digits and a minus sign instead of a hyphen.

    >>> signed(-0.0123), signed(0.5)
    ('−0.012', '+0.500')
    """
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def training(name: str, recipe: Recipe) -> str:
    """Time of training over that of one network for as many epochs: measured steps where a record has them."""
    if name in UNMEASURED:
        return "not measured"
    if name in STEPS:
        return f"{read('bayes')['over_point'][STEPS[name]]:.1f}"
    inverse = {value: key for key, value in ALIASES.items()}
    ratios = [entry["over_de"].get(inverse.get(name, name)) for entry in read("repulsion")["workloads"].values()]
    if recipe.sharing.what == "rank-one":
        ratios = [entry["batch_ensemble"]["over_deep_ensemble"] for entry in read("members")["workloads"].values()]
    if "tuned" in recipe.text("coupling"):
        ratios = [ratio for record in ("repulsion-mnist", "repulsion-cifar10") for ratio in times(record, name)]
    known = sorted({f"{ratio:.1f}" for ratio in ratios if ratio is not None}, key=float)
    if not known:
        return "1" if recipe.members == 1 else "M"
    return f"{known[0]} M to {known[-1]} M" if len(known) > 1 else f"{known[0]} M"


def times(record: str, name: str) -> list[float]:
    """Training times of a method over those of the deep ensemble of the same seed."""
    runs = read(record)["runs"]
    reference = {run["seed"]: run["seconds"] for run in runs if run["method"] == REFERENCE}
    return [run["seconds"] / reference[run["seed"]] for run in runs if run["method"] == name]


def kept(recipe: Recipe) -> int:
    """Weights that the dynamics keeps of a member's path."""
    dynamics: Any = recipe.dynamics
    return int(getattr(dynamics, "draws", 0) or getattr(dynamics, "cycles", 1) * getattr(dynamics, "samples", 1))


def stored(name: str, recipe: Recipe) -> str:
    """Numbers stored over those of one network: measured where members share some."""
    runs = {run["recipe"]: run["parameters"] for run in read("embedded-digits")["runs"]}
    if recipe.sharing.what not in ("own", "head"):
        shared = runs.get(name, runs["batch-ensemble"] if recipe.sharing.what == "rank-one" else None)
        return f"{shared / runs['single']:.1f}" if shared is not None else "1"
    copies = kept(recipe) * (2 if name in STEPS else 1)
    return times_members(copies, recipe)


def passes(recipe: Recipe) -> str:
    """Forward passes of one prediction."""
    return times_members(kept(recipe) * recipe.weights.draws, recipe)


def times_members(count: int, recipe: Recipe) -> str:
    return str(count) if recipe.members == 1 else "M" if count == 1 else f"{count} M"
