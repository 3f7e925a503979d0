"""Tables of the page on costs: predictions beside real runs, and the projection to many members."""

from typing import Any

from table_text import head


def costs_table(record: dict[str, Any]) -> str:
    """CPU seconds, peak memory and disk of every case, predicted and real."""
    names = ["run on digits", "engine", "members", "epochs", "CPU seconds", "predicted"]
    names += ["of these: start", "first steps", "training", "evaluation", "report"]
    lines = head([*names, "peak memory, MB", "predicted", "members on the disk, MB", "predicted"])
    for name, case in record["cases"].items():
        settings, found, real = case["settings"], case["predicted"], case["real"]
        cells = [
            name,
            f"`{found['engine']}`",
            str(settings["members"]),
            str(settings["epochs"]),
            f"{real['cpu']:.1f}",
            f"{found['total']['cpu']:.1f}",
            *(f"{found[part]['cpu']:.1f}" for part in ("start", "first", "training", "evaluation", "report")),
            f"{real['peak_bytes'] / 1e6:.0f}",
            f"{found['memory_bytes'] / 1e6:.0f}",
            f"{real['members_bytes'] / 1e6:.2f}",
            f"{found['disk']['members'] / 1e6:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def projection_table(record: dict[str, Any]) -> str:
    """Bytes that a rank receives in a step, by what members have in common."""
    lines = head(["what members exchange", "bytes received by a rank in a step", "MB"])
    for name, row in record["projection"]["spaces"].items():
        lines.append(f"| {name} | {row['formula']} | {row['bytes'] / 1e6:,.2f} |")
    return "\n".join(lines)
