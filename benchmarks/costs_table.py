"""Tables of the page on costs: predictions beside real runs, and the projection to many members."""

from typing import Any

from table_text import markdown

PARTS = ("start", "first", "training", "evaluation", "report")


def costs_table(record: dict[str, Any]) -> str:
    """Tabulate CPU seconds, peak memory and disk of every case, predicted and real."""
    columns = ["run on digits", "engine", "members", "epochs", "CPU seconds", "predicted"]
    columns += ["of these: start", "first steps", "training", "evaluation", "report"]
    columns += ["peak memory, MB", "predicted", "members on the disk, MB", "predicted"]
    rows = []
    for name, case in record["cases"].items():
        settings, predicted, real = case["settings"], case["predicted"], case["real"]
        seconds = [real["cpu"], *(predicted[part]["cpu"] for part in ("total", *PARTS))]
        row = [name, f"`{predicted['engine']}`", settings["members"], settings["epochs"]]
        row += [f"{value:.1f}" for value in seconds]
        row += [f"{value / 1e6:.0f}" for value in (real["peak_bytes"], predicted["memory_bytes"])]
        row += [f"{value / 1e6:.2f}" for value in (real["members_bytes"], predicted["disk"]["members"])]
        rows.append(row)
    return markdown(rows, columns)


def projection_table(record: dict[str, Any]) -> str:
    """Tabulate bytes that a rank receives in a step, by what members have in common."""
    columns = ["what members exchange", "bytes received by a rank in a step", "MB"]
    spaces = record["projection"]["spaces"].items()
    return markdown(([name, row["formula"], f"{row['bytes'] / 1e6:,.2f}"] for name, row in spaces), columns)
