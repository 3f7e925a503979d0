"""The table of the fault drill, from its record."""

from typing import Any

from table_text import head

FAULTS = {  # heading -> faults of the record
    "killed": ("kill before", "kill after", "kill at a moment", "kill of a worker", "kill of the launcher"),
    "torn write": ("torn write",),
    "power loss": ("power loss",),
    "SIGTERM, SIGINT": ("SIGTERM", "SIGINT"),
    "full disk, I/O error": ("full disk", "I/O error"),
    "damaged file": ("truncated file", "flipped bit", "deleted file"),
}


def fault_table(record: dict[str, Any]) -> str:
    """Faults by command and kind, and the cases that neither ended as undisturbed nor were refused in one line."""
    rows, cells = record["subjects"], {}
    for name, row in rows.items():
        counts = [sum(row.get(each, 0) for each in kinds) for kinds in FAULTS.values()]
        cells[name] = [row["cases"], sum(counts), *counts, row["defects"]]
    cells["all"] = [sum(column) for column in zip(*cells.values(), strict=True)]
    lines = head(["", "cases", "faults", *FAULTS, "defects"])
    lines += [f"| {name} | {' | '.join(f'{number:,}' for number in row)} |" for name, row in cells.items()]
    programs = sum(row["as program"] for row in rows.values())
    launched = sum(row.get("launched", 0) for row in rows.values())
    how = f"{programs} of the cases ran the program itself" + (f", {launched} two under torchrun" if launched else "")
    return "\n".join([*lines, "", f"{how}, the others forks of one process."])
