"""Tables of the loss-landscape reproduction, and what is committed of its record."""

from typing import Any

from tables import head

KEPT = ("experiment", "setting", "versions", "networks", "claims")


def landscape_record(record: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a reproduction: settings, claims, and the numbers of figures that have few of them."""
    parts = record["parts"]
    found: dict[str, Any] = {name: record[name] for name in KEPT}
    if "sizes" in parts:
        names = ("methods", "sizes", "measures", "severities", "conditions", "scores", "divergences", "together")
        found["sizes"] = {name: parts["sizes"][name] for name in names}
    if "trade-off" in parts:
        found["trade-off"] = {name: parts["trade-off"][name] for name in ("reference", "matched", "exponents")}
    if "factorial" in parts:
        names = ("lrs", "runs", "disagreement", "diversity", "cosine", "accuracy")
        found["factorial"] = {name: parts["factorial"][name] for name in names}
    if "chains" in parts:
        found["chains"] = parts["chains"]
    found["setting"] = {**record["setting"], "data": record["setting"]["data"].rsplit("/", 1)[-1]}
    found["setting"]["ood"] = (record["setting"]["ood"] or "").rsplit("/", 1)[-1] or None
    return found


def claims_table(record: dict[str, Any]) -> str:
    """A row for every claim of the paper."""
    lines = head(["claim", "here", "measured", "published", "figure"])
    for each in record["claims"]:
        measured = each["measured"] or "not run"
        lines.append(
            f"| {each['statement']} | {each['verdict']} | {measured} | {each['published']} | {each['figure']} |"
        )
    return "\n".join(lines)
