"""Tables for the README and the docs, made from the committed records so that they cannot drift.

python benchmarks/pages.py                    rewrite the tables
python benchmarks/pages.py --add RUN NAME     first add the record of a finished run, as NAME or as bayes-run-NAME
python benchmarks/pages.py --add-landscape PATH NAME  first add a folder of `murmur reproduce landscape` or a sizes.json
"""

import argparse
import json
import math
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bayes_tables import bayes_choice_table, bayes_cost_table, bayes_ood_table, bayes_runs_table, superres_table
from calibration_table import harm_on_tables, harm_table
from continual_table import continual_table, detection_table, identification_table, speed_sentence, winners_sentence
from costs_table import costs_table, projection_table
from coverage_table import coverage_table
from fault_table import fault_table
from longtail_table import longtail_differences, longtail_table
from network_tables import fine_tuning_table, networks_table, photo_folder_table
from recipe_table import recipes_table
from table_text import SCORES, head, mean_interval, score
from tables_page import MAKERS as TABLE_MAKERS, sets_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def speed_table(record: dict[str, Any]) -> str:
    """Speed-ups over the plain loop, a row a workload."""
    heads = ["ten members, batch 128", "plain loop", "`loop`", "`stacked`", "`threads`", "`threads-stacked`"]
    lines = head([*heads, "`auto` took", "of GEMM peak"])
    for net, entry in record["workloads"].items():
        ratios = " | ".join(f"{entry['engines'][name]['speedup']:.2f}x" for name in entry["engines"])
        plain = f"{1e3 * entry['plain_loop_s']:.0f} ms"
        auto = f"`{entry['auto_engine']}`, {entry['auto_speedup']:.2f}x"
        lines.append(f"| {net} | {plain} | {ratios} | {auto} | {entry['fraction_of_peak']:.2f} |")
    return "\n".join(lines)


def scaling_sentence(record: dict[str, Any]) -> str:
    """The speed-up of two processes with one core each, and the bytes that a process received in a step."""
    counted = record["bytes_per_step"]
    assert all(each["counted"] == each["formula"] for each in counted.values())
    return (
        f"Two processes with one core each, `small-cnn`: {record['independent']:.2f} times the steps of one process"
        f" with one core for independent members, {record['forde']:.2f} times for `forde`, which received"
        f" {counted['forde']['counted'] / 1e6:.1f} MB a step. Counted bytes are those of the formulas."
    )


def runs_table(records: dict[str, dict[str, Any]]) -> str:
    """What runs on real data reached, a row a run; intervals are 95 % over test examples."""
    lines = head(["run", "net", "members", "epochs", "scores of the ensemble", "a member alone", "trained in"])
    for name, record in records.items():
        scores = ", ".join(f"{key} {score(record['metrics'], key)}" for key in SCORES[record["task"]])
        alone = _alone(record)
        minutes = f"{record['cost']['seconds'] / 60:.1f} min"
        lines.append(
            f"| {name} | {record['net']} | {record['cost']['members']} | {record['plan']['epochs']} "
            f"| {scores} | {alone} | {minutes} |"
        )
    return "\n".join(lines)


def _alone(record: dict[str, Any]) -> str:
    key = "accuracy" if record["task"] == "classification" else "rmse"
    values = [member[key] for member in record["members"]]
    return f"{key} {sum(values) / len(values):.3g}"


def run_record(run: Path) -> dict[str, Any]:
    """What is kept of a finished run: settings and scores, no paths."""
    manifest, metrics = (json.loads((run / file).read_text()) for file in ("run.json", "metrics.json"))
    return {
        "task": manifest.data["task"],
        "fingerprint": manifest.data["fingerprint"],
        "examples": manifest.data["examples"],
        "net": manifest.net["name"],
        "recipe": manifest.recipe,
        "plan": manifest.plan,
        "engine": manifest.engine["name"],
        "versions": manifest.versions,
        **{key: metrics[key] for key in ("metrics", "members", "cost")},
        "ood": {each["name"]: each["uncertainties"] for each in metrics.get("ood", [])},
    }


def corruptions_table(record: dict[str, Any]) -> str:
    """All corruptions at all severities, against the package that one would take otherwise."""
    lines = head(["19 corruptions, 5 severities", "images per second", f"seconds for {record['images']:,} images"])
    peer = f"{record['peer']}, timed on {record['peer_images']:,} and scaled"
    for name, key in (("murmuration", "ours"), (peer, "peer")):
        lines.append(f"| {name} | {record[f'{key}_images_per_second']:,.0f} | {record[f'{key}_total_s']:,.0f} |")
    return "\n".join(lines)


QUALITY = {  # heading -> where the number stands in a run, and its digits
    "accuracy": ("clean", "accuracy", 3),
    "NLL": ("clean", "nll", 3),
    "ECE": ("clean", "ece", 3),
    "cA": ("corrupted", "accuracy", 3),
    "cNLL": ("corrupted", "nll", 3),
    "cECE": ("corrupted", "ece", 3),
    "AUROC, entropy": ("auroc", "entropy", 3),
    "AUROC, mutual information": ("auroc", "mutual_information", 3),
}


def quality_table(record: dict[str, Any]) -> str:
    """Means over seeds of every method, with the 95 % interval of the mean (Student's t)."""
    lines = head(["method", "seeds", *QUALITY])
    for method in dict.fromkeys(run["method"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["method"] == method]
        cells = [_spread([run[part][name] for run in runs], digits) for part, name, digits in QUALITY.values()]
        lines.append(f"| {method} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def dynamics_table(record: dict[str, Any]) -> str:
    """Means over seeds of every method and of its NLL minus the deep ensemble's, each with the 95 % interval."""
    columns = [heading for heading, (part, _, _) in QUALITY.items() if part != "auroc"]
    differences = ["NLL - DE", "cNLL - DE"]
    lines = head(["method", "seeds", "members", *columns, *differences, "chosen on validation examples"])
    ensembles = {run["seed"]: run for run in record["runs"] if run["method"] == "deep-ensemble"}
    for method in dict.fromkeys(run["method"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["method"] == method]
        places = [QUALITY[heading] for heading in columns]
        cells = [_spread([run[part][name] for run in runs], digits) for part, name, digits in places]
        paired = [(run, ensembles[run["seed"]]) for run in runs if run["seed"] in ensembles]
        for part in ("clean", "corrupted") if method != "deep-ensemble" else ():
            cells.append(_spread([run[part]["nll"] - other[part]["nll"] for run, other in paired], 3))
        cells += [""] * (len(columns) + 2 - len(cells))
        chosen = ", ".join(f"{name} {value:g}" for name, value in runs[0]["settings"].items())
        lines.append(f"| {method} | {len(runs)} | {runs[0]['members']} | {' | '.join(cells)} | {chosen} |")
    return "\n".join(lines)


def _spread(values: list[float], digits: int) -> str:
    """The mean, and half the width of its interval where there are several values."""
    mean, low, high = mean_interval(values)
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}" if math.isfinite(low) else f"{mean:.{digits}f}"


def repulsion_cost_table(record: dict[str, Any]) -> str:
    """What a step costs beside a deep ensemble's."""
    names = list(dict.fromkeys(name for entry in record["workloads"].values() for name in entry["over_de"]))
    lines = head(["ten members, batch 128", "engine", *(f"`{name}`" for name in names), "coupling itself"])
    for net, entry in record["workloads"].items():
        ratios = [f"{entry['over_de'][name]:.2f}x" if name in entry["over_de"] else "" for name in names]
        share = f"{entry['coupling_share']:.1%}"
        lines.append(f"| {net} | `{entry['engine']}` | {' | '.join(ratios)} | {share} |")
    return "\n".join(lines)


TOYS = {"gaps-1d": ("near data", "in the gaps", "beyond"), "five-gaussians": ("near data", "in the middle", "far")}


def toys_table(record: dict[str, Any]) -> str:
    """Mean uncertainty by place on both toys: the mean of seeds, the smallest and the largest."""
    runs = record["runs"]
    seeds = len({run["seed"] for run in runs})
    places = {toy: [key for run in runs if run["toy"] == toy for key in run][3:6] for toy in TOYS}
    columns = [f"{name}: {place}" for name, toy in zip(("line", "plane"), TOYS, strict=True) for place in TOYS[toy]]
    lines = head([f"{seeds} seeds", *columns])
    for recipe in dict.fromkeys(run["recipe"] for run in runs):
        cells = []
        for toy in TOYS:
            for place in places[toy]:
                values = [run[place] for run in runs if (run["toy"], run["recipe"]) == (toy, recipe)]
                cells.append(f"{sum(values) / len(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        lines.append(f"| `{recipe}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def pruning_table(record: dict[str, Any]) -> str:
    """Scores of one network pruned by every rule, before and after fine-tuning."""
    columns = ["val. accuracy, pruned", "fine-tuned", "test accuracy", "test NLL"]
    lines = head(["rule", "sparsity", "not zero", *columns])
    for row in record["rows"]:
        rule = re.sub(r", \d+%$", "", row["name"])
        before = f"{row['pruned_val']['accuracy']['value']:.3f}" if "pruned_val" in row else ""
        cells = [
            before,
            f"{row['val']['accuracy']['value']:.3f}",
            *(score(row["test"], key) for key in ("accuracy", "nll")),
        ]
        lines.append(f"| {rule} | {100 * row['sparsity']:.0f} % | {row['nonzero']:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def embedded_cost_table(record: dict[str, Any]) -> str:
    """What a BatchEnsemble of ten costs: time against loops over single networks, numbers stored against one."""
    lines = head(
        ["ten members, batch 128", "engine", "of the plain loop", "of `deep-ensemble`", "numbers of one net's"]
    )
    for net, entry in record["workloads"].items():
        each = entry["batch_ensemble"]
        ratios = [each[key] for key in ("over_plain_loop", "over_deep_ensemble", "parameters_over_single")]
        lines.append(f"| {net} | `{each['engine']}` | {' | '.join(f'{ratio:.2f}x' for ratio in ratios)} |")
    return "\n".join(lines)


EMBEDDED_SCORES = {"accuracy": 4, "nll": 4, "ece": 4, "diversity": 4, "disagreement": 4}


def embedded_quality_table(record: dict[str, Any]) -> str:
    """Means over seeds of every recipe, what it stores and how long it trained."""
    lines = head(["recipe", "seeds", *EMBEDDED_SCORES, "stored numbers", "trained in"])
    for name in dict.fromkeys(run["recipe"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["recipe"] == name]
        cells = [_spread([run[score] for run in runs], digits) for score, digits in EMBEDDED_SCORES.items()]
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        lines.append(f"| {name} | {len(runs)} | {' | '.join(cells)} | {runs[0]['parameters']:,} | {seconds:.0f} s |")
    return "\n".join(lines)


def fuzz_table(record: dict[str, Any]) -> str:
    """The outcomes of generated files and command lines, a row a kind."""
    verdicts = ("accepted", "refused", "failed", "bad")
    lines = head(["kind", "cases", "accepted", "refused (`Misuse`)", "failed (`Failure`)", "bad"])
    for kind, counts in record["kinds"].items():
        cells = [counts.get(verdict, 0) for verdict in verdicts]
        lines.append(f"| {kind} | {sum(counts.values()):,} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    totals = [sum(counts.get(verdict, 0) for counts in record["kinds"].values()) for verdict in verdicts]
    lines.append(f"| all | {sum(totals):,} | {' | '.join(f'{total:,}' for total in totals)} |")
    return "\n".join(lines)


def fuzz_api_table(record: dict[str, Any]) -> str:
    """The outcomes of calls of the Python API with hostile values, a row an area."""
    verdicts = ("right", "refused", "failed", "internal", "wrong")
    titles = ("calls", "right", "refused (`Misuse`)", "failed (`Failure`)", "internal exceptions", "wrong")
    lines = head(["area", *titles])
    rows = {**record["kinds"], "all": {v: sum(c.get(v, 0) for c in record["kinds"].values()) for v in verdicts}}
    for area, counts in rows.items():
        cells = [sum(counts.values()), *(counts.get(verdict, 0) for verdict in verdicts)]
        lines.append(f"| {area} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    return "\n".join(lines)


MAKERS: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {  # place -> record, maker
    "speed": ("members", speed_table),
    "corruptions": ("corruptions", corruptions_table),
    "continual": ("continual", continual_table),
    "continual-winners": ("continual", winners_sentence),
    "continual-speed": ("continual-speed", speed_sentence),
    "continual-detection": ("continual", detection_table),
    "continual-identification": ("continual", identification_table),
    "costs": ("costs", costs_table),
    "costs-projection": ("costs", projection_table),
    "coverage": ("coverage", coverage_table),
    "fault-drill": ("fault-drill", fault_table),
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
if find_spec("murmuration.studies"):  # the second floor can be removed; its tables are then left as they are
    from study_tables import MAKERS as STUDY_MAKERS

    MAKERS |= STUDY_MAKERS


def tables() -> dict[str, str]:
    """Every generated table by the name of its place; one without a record is left as it is."""
    runs, bayes, larger = (_records(prefix) for prefix in ("run-", "bayes-run-", "superres-"))
    records = {name: RESULTS / f"{file}.json" for name, (file, _) in MAKERS.items()}
    made = {name: MAKERS[name][1](json.loads(path.read_text())) for name, path in records.items() if path.exists()}
    made["recipes"] = recipes_table()
    made |= {f"tables-{group}": sets_table(group) for group in ("choosing", "reporting")}
    return {**made, "runs": runs_table(runs), "bayes-runs": bayes_runs_table(bayes), "superres": superres_table(larger)}


def _records(prefix: str) -> dict[str, dict[str, Any]]:
    """The committed runs whose names begin so, by the rest of their names."""
    paths = sorted(RESULTS.glob(f"{prefix}*.json"))
    return {path.stem.removeprefix(prefix): json.loads(path.read_text()) for path in paths}


def with_tables(text: str) -> str:
    """The page with every `<!-- table NAME -->` place filled anew."""
    for name, table in tables().items():
        place = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = place.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    return text


PAGES = tuple(
    ROOT / page
    for page in (
        "README.md",
        "docs/real-data.md",
        "docs/calibration.md",
        "docs/continual.md",
        "docs/repulsion.md",
        "docs/embedded.md",
        "docs/bayes.md",
        "docs/dynamics.md",
        "docs/landscape-cifar10.md",
        "docs/longtail.md",
        "docs/costs.md",
        "docs/distributed.md",
        "docs/own-networks.md",
        "docs/pretrained.md",
        "docs/pruning.md",
        "docs/reliability.md",
        "docs/tables.md",
        "docs/tables-measured.md",
    )
)


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
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))


if __name__ == "__main__":
    main()
