"""Tables for the README and the docs, made from the committed records so that they cannot drift.

python benchmarks/pages.py                    rewrite the tables
python benchmarks/pages.py --add RUN NAME     first add the record of a finished run, as NAME or as bayes-run-NAME
python benchmarks/pages.py --add-landscape PATH NAME  first add a folder of `murmur reproduce landscape` or a sizes.json
"""

import argparse
import json
import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from bayes_tables import bayes_choice_table, bayes_cost_table, bayes_ood_table, bayes_runs_table, superres_table
from calibration_table import harm_on_tables, harm_table
from continual_table import continual_table, detection_table, identification_table, speed_sentence, winners_sentence
from costs_table import costs_table, projection_table
from coverage_table import coverage_table
from fault_table import fault_table
from longtail_table import longtail_differences, longtail_table
from network_tables import fine_tuning_table, networks_table, photo_folder_table
from pandas.api.typing import DataFrameGroupBy
from recipe_table import recipes_table
from table_text import SCORES, interval, markdown, score, spread
from tables_page import MAKERS as TABLE_MAKERS, sets_table

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"


def speed_table(record: dict[str, Any]) -> str:
    """Tabulate speed-ups over the plain loop."""
    return markdown(
        {"ten members, batch 128": net, "plain loop": f"{1e3 * entry['plain_loop_s']:.0f} ms"}
        | {f"`{name}`": f"{engine['speedup']:.2f}x" for name, engine in entry["engines"].items()}
        | {"`auto` took": f"`{entry['auto_engine']}`, {entry['auto_speedup']:.2f}x"}
        | {"of GEMM peak": f"{entry['fraction_of_peak']:.2f}"}
        for net, entry in record["workloads"].items()
    )


def latency_table(record: dict[str, Any]) -> str:
    """Tabulate the time of `predict` beside a loop over members and vmap, both written by hand."""
    ways = {"predict": "`predict`", "loop": "loop by hand", "vmap": "vmap by hand"}
    return markdown(
        {"network, members, inputs": name} | {title: f"{entry[way]['wall_ms']:.2f} ms" for way, title in ways.items()}
        for name, entry in record["cases"].items()
    )


def scaling_sentence(record: dict[str, Any]) -> str:
    """State the speed-up of two processes with one core each, and the bytes that a process received in a step."""
    traffic = record["bytes_per_step"]
    assert all(entry["counted"] == entry["formula"] for entry in traffic.values())
    return (
        f"Two processes with one core each, `small-cnn`: {record['independent']:.2f} times the steps of one process"
        f" with one core for independent members, {record['forde']:.2f} times for `forde`, which received"
        f" {traffic['forde']['counted'] / 1e6:.1f} MB a step. Counted bytes are those of the formulas."
    )


def runs_table(records: dict[str, dict[str, Any]]) -> str:
    """Tabulate what runs on real data reached; intervals are 95 % over test examples."""
    rows = []
    for name, record in records.items():
        names, cost = SCORES[record["task"]], record["cost"]
        alone = fmean(member[names[0]] for member in record["members"])
        row = {"run": name, "net": record["net"], "members": cost["members"], "epochs": record["plan"]["epochs"]}
        row |= {"scores of the ensemble": ", ".join(f"{key} {score(record['metrics'], key)}" for key in names)}
        rows.append(
            row | {"a member alone": f"{names[0]} {alone:.3g}", "trained in": f"{cost['seconds'] / 60:.1f} min"}
        )
    return markdown(rows)


def run_record(run: Path) -> dict[str, Any]:
    """Return what is kept of a finished run: settings and scores, no paths."""
    manifest, metrics = (json.loads((run / file).read_text()) for file in ("run.json", "metrics.json"))
    return {
        **{key: manifest["data"][key] for key in ("task", "fingerprint", "examples")},
        **{key: manifest[key]["name"] for key in ("net", "engine")},
        **{key: manifest[key] for key in ("recipe", "plan", "versions")},
        **{key: metrics[key] for key in ("metrics", "members", "cost")},
        "ood": {scores["name"]: scores["uncertainties"] for scores in metrics.get("ood", [])},
    }


def corruptions_table(record: dict[str, Any]) -> str:
    """Tabulate all corruptions at all severities, against the package that one would take otherwise."""
    peer = f"{record['peer']}, timed on {record['peer_images']:,} and scaled"
    columns = ["19 corruptions, 5 severities", "images per second", f"seconds for {record['images']:,} images"]
    rows = (
        [name, *(f"{record[f'{key}_{quantity}']:,.0f}" for quantity in ("images_per_second", "total_s"))]
        for name, key in (("murmuration", "ours"), (peer, "peer"))
    )
    return markdown(rows, columns)


LOSSES = {"clean.accuracy": "accuracy", "clean.nll": "NLL", "clean.ece": "ECE"}  # of a flattened run -> column
LOSSES |= {"corrupted.accuracy": "cA", "corrupted.nll": "cNLL", "corrupted.ece": "cECE"}
AUROCS = {"auroc.entropy": "AUROC, entropy", "auroc.mutual_information": "AUROC, mutual information"}


def means_table(runs: DataFrameGroupBy, columns: dict[str, str], form: str = ".3f") -> pd.DataFrame:
    """Return the number of seeds in each group of runs, and means with 95 % intervals (Student's t)."""
    means = runs[list(columns)].agg(spread, form).rename(columns=columns)
    means.insert(0, "seeds", runs.size())
    return means


def quality_table(record: dict[str, Any]) -> str:
    """Tabulate means over seeds of every method."""
    runs = pd.json_normalize(record["runs"]).groupby("method", sort=False)
    return markdown(means_table(runs, LOSSES | AUROCS).reset_index())


def dynamics_table(record: dict[str, Any]) -> str:
    """Tabulate means over seeds of every method and of its NLL minus the deep ensemble's."""
    runs = pd.json_normalize(record["runs"], max_level=1)
    methods = runs.groupby("method", sort=False)
    table = means_table(methods, LOSSES)
    table.insert(1, "members", methods.members.first())
    ensembles = runs[runs.method == "deep-ensemble"].set_index("seed")
    for key in ("clean.nll", "corrupted.nll"):
        gaps = {name: (own.set_index("seed")[key] - ensembles[key]).dropna() for name, own in methods}
        table[f"{LOSSES[key]} - DE"] = {
            name: "" if name == "deep-ensemble" else spread(gap) for name, gap in gaps.items()
        }
    settings = {run["method"]: run["settings"].items() for run in reversed(record["runs"])}
    table["chosen on validation examples"] = table.index.map(
        lambda name: ", ".join(f"{k} {v:g}" for k, v in settings[name])
    )
    return markdown(table.reset_index())


def repulsion_cost_table(record: dict[str, Any]) -> str:
    """Tabulate what a step costs beside a deep ensemble's."""
    workloads = record["workloads"].items()
    names = dict.fromkeys(name for _, entry in workloads for name in entry["over_de"])
    return markdown(
        {"ten members, batch 128": net, "engine": f"`{entry['engine']}`"}
        | {f"`{name}`": f"{entry['over_de'][name]:.2f}x" if name in entry["over_de"] else "" for name in names}
        | {"coupling itself": f"{entry['coupling_share']:.1%}"}
        for net, entry in workloads
    )


TOYS = {  # toy -> key of the record -> column
    "gaps-1d": {"near": "line: near data", "gap": "line: in the gaps", "far": "line: beyond"},
    "five-gaussians": {"near": "plane: near data", "middle": "plane: in the middle", "far": "plane: far"},
}


def toys_table(record: dict[str, Any]) -> str:
    """Tabulate mean uncertainty by place on both toys: the mean of seeds, the smallest and the largest."""
    runs = pd.DataFrame(record["runs"])
    table = {f"{runs.seed.nunique()} seeds": {recipe: f"`{recipe}`" for recipe in runs.recipe}}
    for toy, columns in TOYS.items():
        recipes = runs[runs.toy == toy].groupby("recipe", sort=False)
        for key, column in columns.items():
            table[column] = recipes[key].agg(
                lambda seeds: f"{seeds.mean():.3f} ({seeds.min():.3f} to {seeds.max():.3f})"
            )
    return markdown(pd.DataFrame(table))


def pruning_table(record: dict[str, Any]) -> str:
    """Tabulate scores of one network pruned by every rule, before and after fine-tuning."""
    rows = []
    for entry in record["rows"]:
        rule, pruned = re.sub(r", \d+%$", "", entry["name"]), entry.get("pruned_val")
        row = {"rule": rule, "sparsity": f"{100 * entry['sparsity']:.0f} %", "not zero": f"{entry['nonzero']:,}"}
        row |= {"val. accuracy, pruned": f"{pruned['accuracy']['value']:.3f}" if pruned else ""}
        row |= {"fine-tuned": f"{entry['val']['accuracy']['value']:.3f}"}
        rows.append(row | {f"test {title}": interval(entry["test"][title.lower()]) for title in ("accuracy", "NLL")})
    return markdown(rows)


def embedded_cost_table(record: dict[str, Any]) -> str:
    """Tabulate what a BatchEnsemble of ten costs: time against loops over single networks, numbers against one."""
    ratios = {"over_plain_loop": "of the plain loop", "over_deep_ensemble": "of `deep-ensemble`"}
    ratios |= {"parameters_over_single": "numbers of one net's"}
    return markdown(
        {"ten members, batch 128": net, "engine": f"`{entry['batch_ensemble']['engine']}`"}
        | {title: f"{entry['batch_ensemble'][key]:.2f}x" for key, title in ratios.items()}
        for net, entry in record["workloads"].items()
    )


def embedded_quality_table(record: dict[str, Any]) -> str:
    """Tabulate means over seeds of every recipe, what it stores and how long it trained."""
    runs = pd.DataFrame(record["runs"]).groupby("recipe", sort=False)
    scores = ("accuracy", "nll", "ece", "diversity", "disagreement")
    table = means_table(runs, {name: name for name in scores}, ".4f")
    table["stored numbers"] = runs.parameters.first().map("{:,}".format)
    table["trained in"] = runs.seconds.mean().map("{:.0f} s".format)
    return markdown(table.reset_index())


def outcome_table(record: dict[str, Any], kind: str, count: str, verdicts: dict[str, str]) -> str:
    """Tabulate outcomes by kind; `verdicts` are their headings by name."""
    counts = pd.DataFrame.from_dict(record["kinds"], orient="index").reindex(columns=list(verdicts)).fillna(0)
    counts.loc["all"] = counts.sum()
    counts.insert(0, count, counts.sum(axis=1))
    columns = [kind, count, *verdicts.values()]
    return markdown(([name, *map("{:,.0f}".format, row)] for name, row in counts.iterrows()), columns)


REFUSED = {"refused": "refused (`Misuse`)", "failed": "failed (`Failure`)"}


def fuzz_table(record: dict[str, Any]) -> str:
    """Tabulate the outcomes of generated files and command lines by kind."""
    return outcome_table(record, "kind", "cases", {"accepted": "accepted", **REFUSED, "bad": "bad"})


def fuzz_api_table(record: dict[str, Any]) -> str:
    """Tabulate the outcomes of calls of the Python API with hostile values by area."""
    verdicts = {"right": "right", **REFUSED, "internal": "internal exceptions", "wrong": "wrong"}
    return outcome_table(record, "area", "calls", verdicts)


MAKERS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {  # place -> record, maker
    "speed": ("members", speed_table),
    "corruptions": ("corruptions", corruptions_table),
    "continual": ("continual", continual_table),
    "continual-winners": ("continual", winners_sentence),
    "continual-speed": ("continual-speed", speed_sentence),
    "continual-detection": ("continual", detection_table),
    "continual-identification": ("continual", identification_table),
    "costs": ("costs", costs_table),
    "latency": ("predict", latency_table),
    "costs-projection": ("costs", projection_table),
    "coverage": ("coverage", coverage_table),
    "fault-drill": ("faults", fault_table),
    "scaling": ("scaling", scaling_sentence),
    "repulsion-cost": ("repulsion", repulsion_cost_table),
    "pruning-digits": ("pruning-digits", pruning_table),
    "repulsion-toys": ("repulsion-toys", toys_table),
    "repulsion-mnist": ("repulsion-mnist", quality_table),
    "repulsion-cifar10": ("repulsion-cifar10", quality_table),
    "dynamics-digits": ("dynamics-digits", dynamics_table),
    "dynamics-cifar10": ("dynamics-cifar10", dynamics_table),
    "bayes-cost": ("bayes", bayes_cost_table),
    "bayes-choice": ("bayes-ood", bayes_choice_table),
    "bayes-ood": ("bayes-ood", bayes_ood_table),
    "embedded-cost": ("members", embedded_cost_table),
    "embedded-digits": ("embedded-digits", embedded_quality_table),
    "embedded-mnist": ("embedded-mnist", embedded_quality_table),
    "fine-tuning": ("fine-tuning", fine_tuning_table),
    "fuzz": ("fuzz", fuzz_table),
    "fuzz-api": ("fuzz-api", fuzz_api_table),
    "photo-folder": ("photo-folder", photo_folder_table),
    "networks": ("networks", networks_table),
    "longtail": ("longtail", longtail_table),
    "longtail-differences": ("longtail", longtail_differences),
    "calibration-harm": ("calibration", harm_table),
    "calibration-harm-tables": ("calibration", harm_on_tables),
    **{name: ("tables", maker) for name, maker in TABLE_MAKERS.items()},
}
WHOLE: dict[str, Callable[[], str]] = {"recipes": recipes_table}  # places whose makers read several records
if find_spec("murmuration.studies"):  # the second floor can be removed; its tables are then left as they are
    from papers_page import MAKERS as PAPER_MAKERS, papers_table
    from study_tables import MAKERS as STUDY_MAKERS

    MAKERS |= STUDY_MAKERS | PAPER_MAKERS
    WHOLE["papers"] = papers_table


@cache
def tables() -> dict[str, str]:
    """Return every generated table by the name of its place; one without a record is left as it is."""
    records = {name: RESULTS / f"{record}.json" for name, (record, _) in MAKERS.items()}
    made = {name: MAKERS[name][1](json.loads(path.read_text())) for name, path in records.items() if path.exists()}
    made |= {f"tables-{group}": sets_table(group) for group in ("choosing", "reporting")}
    several = {
        "runs": (runs_table, "run-"),
        "bayes-runs": (bayes_runs_table, "bayes-run-"),
        "superres": (superres_table, "superres-"),
    }
    made |= {name: maker(_records(prefix)) for name, (maker, prefix) in several.items()}
    return made | {name: maker() for name, maker in WHOLE.items()}


def _records(prefix: str) -> dict[str, dict[str, Any]]:
    """Return the committed records whose names begin with the prefix, by the rest of their names."""
    paths = sorted(RESULTS.glob(f"{prefix}*.json"))
    return {path.stem.removeprefix(prefix): json.loads(path.read_text()) for path in paths}


def with_tables(text: str) -> str:
    """Fill every `<!-- table NAME -->` place of a page anew."""
    for name, table in tables().items():
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = place.sub(lambda match, table=table: f"{match[1]}{table}\n{match[2]}", text)
    return text


PAGES = [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if "<!-- table " in page.read_text()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs=2, metavar=("RUN", "NAME"), help="a run directory, and what to call it")
    parser.add_argument(
        "--add-landscape", nargs=2, metavar=("PATH", "NAME"), help="a reproduction, and what to call it"
    )
    options = parser.parse_args()
    if options.add:
        run, name = options.add
        file = name if name.startswith("bayes-run-") else f"run-{name}"
        (RESULTS / f"{file}.json").write_text(json.dumps(run_record(Path(run)), indent=2) + "\n")
    if options.add_landscape:
        folder, name = options.add_landscape
        file = Path(folder) / "record.json" if Path(folder).is_dir() else Path(folder)
        from landscape_table import landscape_record

        kept = landscape_record(json.loads(file.read_text()))
        (RESULTS / f"landscape-{name}.json").write_text(json.dumps(kept) + "\n")
    rewrite()


def rewrite() -> None:
    """Fill the tables of all pages anew."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))


if __name__ == "__main__":
    main()
