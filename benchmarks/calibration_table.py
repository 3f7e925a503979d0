"""The table of harm done by calibration, from its record."""

from typing import Any

from table_text import head

AIM = 0.05  # of runs, at most, may be worse


def summary(record: dict[str, Any]) -> dict[str, Any]:
    """Over all simulations and all tables: the share of runs that are worse after calibration, and by how much."""
    cells = record["simulations"]
    runs = sum(cell["runs"] for cell in cells)
    worse = sum(cell["worse"] * cell["runs"] for cell in cells)
    found: dict[str, Any] = {}
    if cells:
        by = sum(cell["worse_by"] * cell["worse"] * cell["runs"] for cell in cells)
        found["simulations"] = {
            "runs": runs,
            "worse": worse / runs,
            "worse_by": by / worse if worse else 0.0,
            "largest_share": max(cell["worse"] for cell in cells),
            "worst": max(cell["worst"] for cell in cells),
            "change": sum(cell["change"] * cell["runs"] for cell in cells) / runs,
        }
    tables = [cell for cell in record["tables"] if cell["calibrated"]]
    if tables:
        changes = [cell["after"] - cell["before"] for cell in tables]
        harmed = [change for change in changes if change > 0]
        found["tables"] = {
            "runs": len(changes),
            "worse": len(harmed) / len(changes),
            "worse_by": sum(harmed) / len(harmed) if harmed else 0.0,
            "change": sum(changes) / len(changes),
        }
    return found


def harm_table(record: dict[str, Any]) -> str:
    """Simulations, a row a truth: over all sizes and by size, the share of runs that are worse and the mean change."""
    cells = record["simulations"]
    sizes = sorted({cell["examples"] for cell in cells})
    lines = head(["truth", "worse, by", *(f"n = {size:,}: worse, change" for size in sizes)])
    for truth in dict.fromkeys(cell["truth"] for cell in cells):
        own = {cell["examples"]: cell for cell in cells if cell["truth"] == truth}
        runs, worse = (
            sum(each) for each in zip(*((c["runs"], c["runs"] * c["worse"]) for c in own.values()), strict=True)
        )
        by = sum(cell["worse_by"] * cell["worse"] * cell["runs"] for cell in own.values()) / worse if worse else 0.0
        told = [
            f"{100 * own[size]['worse']:.0f} %, {own[size]['change']:+.3f}" if size in own else "" for size in sizes
        ]
        lines.append(f"| {truth} | {100 * worse / runs:.1f} %, {by:.3f} | {' | '.join(told)} |")
    found = summary(record)["simulations"]
    lines.append(
        f"| all {found['runs']:,} runs | {100 * found['worse']:.1f} %, {found['worse_by']:.3f} |{' |' * len(sizes)}"
    )
    return "\n".join(lines)


def harm_on_tables(record: dict[str, Any]) -> str:
    """Real tables with the default network, a row a table: splits whose test log-loss is worse after calibration."""
    lines = head(["table", "splits", "examples of the calibrator", "kept", "worse", "NLL before", "NLL after"])
    for table in dict.fromkeys(cell["table"] for cell in record["tables"]):
        own = [cell for cell in record["tables"] if cell["table"] == table and cell["calibrated"]]
        if own:
            before, after = (sum(cell[when] for cell in own) / len(own) for when in ("before", "after"))
            worse = sum(cell["after"] > cell["before"] for cell in own)
            kept = sum(cell["kept"] for cell in own)
            shown = f"{kept} | {worse} | {before:.3g} | {after:.3g}"
            lines.append(f"| {table} | {len(own)} | {own[0]['examples']} | {shown} |")
    return "\n".join(lines)
