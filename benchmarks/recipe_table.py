"""The table of recipes: what each is for, what it costs and what it gained, all from the committed records.

Costs are those of one network; M is the number of members. Gains are differences of the NLL to the deep ensemble of the
same seed, with the 95 % t-interval of their mean over seeds; bold where it leaves out 0.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from table_text import difference, markdown

from murmuration.core.presets import PRESETS
from murmuration.core.recipe import Recipe

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
    """Tabulate the recipes, the default in bold."""
    gains, corrupted = gains_of("clean"), gains_of("corrupted")
    gains["bayes"] = bayes_gains()
    gains[REFERENCE] = corrupted[REFERENCE] = ["0"]
    return markdown(
        {"recipe": f"**`{name}`**, the default" if name == REFERENCE else f"`{name}`"}
        | {"good for": row.good, "against it": row.bad, "training": training(name, row.value)}
        | {"stored": stored(name, row.value), "passes": passes(row.value)}
        | {"NLL - DE": "; ".join(gains.get(name, [])), "corrupted NLL - DE": "; ".join(corrupted.get(name, []))}
        for name, row in PRESETS.items()
        if name not in ALIASES
    )


def gains_of(part: str) -> dict[str, list[str]]:
    """Return for each recipe the measured differences to the deep ensemble, one text per record."""
    gains: dict[str, list[str]] = {}
    for record, data in QUALITY.items():
        runs = pd.json_normalize(read(record)["runs"]).rename(columns={"method": "recipe", "nll": "clean.nll"})
        if f"{part}.nll" in runs:
            losses = runs.replace({"recipe": ALIASES}).pivot(index="recipe", columns="seed", values=f"{part}.nll")
            for name, differences in losses.sub(losses.loc[REFERENCE]).drop(REFERENCE).iterrows():
                gains.setdefault(name, []).append(f"{data} {signed(differences.dropna())}")
    return gains


def bayes_gains() -> list[str]:
    """Return the differences of Gaussian weights to deterministic ones of one network, one run each."""
    texts = []
    for path in sorted(RESULTS.glob("bayes-run-*-distributions.json")):
        other = path.with_name(path.name.replace("distributions", "numbers"))
        if other.exists():
            gaussian, point = (json.loads(p.read_text())["metrics"]["nll"]["value"] for p in (path, other))
            data, net = path.stem.removeprefix("bayes-run-").split("-")[:2]
            texts.append(f"{data} {net} ‡ {signed([gaussian - point])}")
    return texts


def signed(values: Sequence[float]) -> str:
    """Write the mean of differences with its interval, and a minus sign instead of a hyphen.

    >>> signed([-0.0123]), signed([0.5])
    ('−0.012', '+0.500')
    """
    return difference(values).replace("-", "\N{MINUS SIGN}")


def training(name: str, recipe: Recipe) -> str:
    """Return the time of training over that of one network for as many epochs, by measured steps if there are any."""
    if name in UNMEASURED:
        return "not measured"
    if name in STEPS:
        return f"{read('bayes')['over_point'][STEPS[name]]:.1f}"
    inverse = {value: key for key, value in ALIASES.items()}
    ratios = [entry["over_de"].get(inverse.get(name, name)) for entry in read("repulsion")["workloads"].values()]
    if recipe.sharing.what == "rank-one":
        ratios = [entry["batch_ensemble"]["over_deep_ensemble"] for entry in read("members")["workloads"].values()]
    if "tuned" in recipe.text("coupling"):
        ratios = [
            median(times(record, name)) for record in ("repulsion-mnist", "repulsion-cifar10")
        ]  # one run is noise
    texts = [f"{ratio:.1f} M" for ratio in sorted(ratio for ratio in ratios if ratio is not None)]
    if not texts:
        return times_members(1, recipe)
    return " to ".join(dict.fromkeys((texts[0], texts[-1])))


def times(record: str, name: str) -> list[float]:
    """Return training times of a method over those of the deep ensemble of the same seed."""
    runs = read(record)["runs"]
    reference = {run["seed"]: run["seconds"] for run in runs if run["method"] == REFERENCE}
    return [run["seconds"] / reference[run["seed"]] for run in runs if run["method"] == name]


def kept(recipe: Recipe) -> int:
    """Return the number of weights that the dynamics keeps of a member's path."""
    dynamics: Any = recipe.dynamics
    return int(getattr(dynamics, "draws", 0) or getattr(dynamics, "cycles", 1) * getattr(dynamics, "samples", 1))


def stored(name: str, recipe: Recipe) -> str:
    """Return the numbers stored over those of one network: measured where members share some."""
    runs = {run["recipe"]: run["parameters"] for run in read("embedded-digits")["runs"]}
    if recipe.sharing.what not in ("own", "head"):
        shared = runs.get(name, runs["batch-ensemble"] if recipe.sharing.what == "rank-one" else None)
        return f"{shared / runs['single']:.1f}" if shared is not None else "1"
    copies = kept(recipe) * (2 if name in STEPS else 1)
    return times_members(copies, recipe)


def passes(recipe: Recipe) -> str:
    """Return the forward passes of one prediction."""
    return times_members(kept(recipe) * recipe.weights.draws, recipe)


def times_members(count: int, recipe: Recipe) -> str:
    return str(count) if recipe.members == 1 else "M" if count == 1 else f"{count} M"
