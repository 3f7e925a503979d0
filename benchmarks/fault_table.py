"""The table of the fault drill, from its record."""

from typing import Any

import pandas as pd
from table_text import markdown

FAULTS = {  # heading -> faults of the record
    "killed": ("kill before", "kill after", "kill at a moment", "kill of a worker", "kill of the launcher"),
    "torn write": ("torn write",),
    "power loss": ("power loss",),
    "SIGTERM, SIGINT": ("SIGTERM", "SIGINT"),
    "full disk, I/O error": ("full disk", "I/O error"),
    "damaged file": ("truncated file", "flipped bit", "deleted file"),
}


def fault_table(record: dict[str, Any]) -> str:
    """Tabulate faults by command and kind, and the cases that neither ended as undisturbed nor were refused."""
    rows = pd.DataFrame.from_dict(record["subjects"], orient="index").fillna(0)
    kinds = {name: rows.reindex(columns=faults).sum(axis=1) for name, faults in FAULTS.items()}
    counts = pd.DataFrame({"cases": rows["cases"], "faults": sum(kinds.values()), **kinds, "defects": rows["defects"]})
    counts.loc["all"] = counts.sum()
    table = markdown({"": name, **row.map("{:,.0f}".format)} for name, row in counts.iterrows())
    programs, launched = (int(rows[name].sum()) if name in rows else 0 for name in ("as program", "launched"))
    how = f"{programs} of the cases ran the program itself" + (f", {launched} two under torchrun" if launched else "")
    return f"{table}\n\n{how}, the others forks of one process."
