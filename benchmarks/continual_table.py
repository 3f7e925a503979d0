"""Tables of streams of tasks, made from the record of `continual_streams.py`."""

from typing import Any

from table_text import head, mean_interval

PUBLISHED = {  # final average accuracy in percent, task-agnostic, of Kirichenko et al. (2021)
    ("svhn-mnist", "hcl-fr"): 96.38,
    ("svhn-mnist", "hcl-gr"): 93.84,
    ("mnist-svhn", "hcl-fr"): 95.62,
    ("mnist-svhn", "hcl-gr"): 96.04,
    ("split-mnist", "hcl-fr"): 90.89,
    ("split-mnist", "hcl-gr"): 84.65,
    ("split-cifar10", "hcl-fr"): 89.44,
    ("split-cifar10", "hcl-gr"): 80.29,
    ("split-cifar100", "hcl-fr"): 59.66,
    ("split-cifar100", "hcl-gr"): 51.64,
}


def winners_sentence(record: dict[str, Any]) -> str:
    """Who has the largest mean final accuracy in each stream, joint training apart, and the best flow beside it."""
    found: dict[str, dict[str, float]] = {}
    for stream, method, cells in grouped(record):
        if method != "joint":
            values = [cell["final_average"] for cell in cells]
            found.setdefault(stream, {})[method] = 100 * sum(values) / len(values)
    parts = []
    for stream, scores in found.items():
        best = max(scores, key=scores.__getitem__)
        flows = [method for method in scores if method.startswith("hcl")]
        second = max(flows, key=scores.__getitem__, default=best)
        beside = "" if second == best else f", `{second}` has {scores[second]:.1f} %"
        parts.append(f"`{best}` in {stream} ({scores[best]:.1f} %{beside})")
    return f"Joint training apart, the highest final accuracy is that of {'; '.join(parts)}."


def continual_table(record: dict[str, Any]) -> str:
    """Final accuracy, forgetting and memory of every method in every stream, in percent; published figures beside."""
    columns = ["stream", "method", "seeds", "final accuracy", "published", "forgetting", "task identified", "memory"]
    lines = head(columns)
    for stream, method, cells in grouped(record):
        published = PUBLISHED.get((stream, method))
        named = [cell["task_id"] for cell in cells if cell["task_id"] is not None]
        memory = sum(sum(cell["memory"].values()) for cell in cells) / len(cells)
        values = [
            percent([cell["final_average"] for cell in cells]),
            "" if published is None else f"{published:.2f}",
            "" if method == "joint" else percent([cell["forgetting"] for cell in cells]),
            percent(named) if named else "",
            f"{memory / 2**20:.2f} MB",
        ]
        lines.append(f"| {stream} | `{method}` | {len(cells)} | {' | '.join(values)} |")
    return "\n".join(lines)


def detection_table(record: dict[str, Any]) -> str:
    """Changes noticed in the streams whose labels do not give them away, sums over seeds."""
    lines = head(
        ["stream", "method", "seeds", "changes", "missed", "false alarms", "mean delay", "recurring recognised"]
    )
    for stream, method, cells in grouped(record):
        found = [cell["detection"] for cell in cells if cell["detection"] is not None]
        if not stream.startswith("changes-") or not found:
            continue
        delays = [each["mean_delay"] for each in found if each["mean_delay"] is not None]
        delay = f"{sum(delays) / len(delays):.1f} batches" if delays else ""
        sums = {key: sum(each[key] for each in found) for key in ("changes", "misses", "false_alarms")}
        again = f"{sum(each['recognised'] for each in found)} of {sum(each['recurring'] for each in found)}"
        counts = " | ".join(str(value) for value in sums.values())
        lines.append(f"| {stream} | `{method}` | {len(found)} | {counts} | {delay} | {again} |")
    return "\n".join(lines)


def speed_sentence(record: dict[str, Any]) -> str:
    """The time of a training step of the flow, and how many times as long others take."""
    ours = record["milliseconds"]["murmuration"]
    return (
        f"A step takes {ours:.1f} ms on one core, {record['over_plain']:.2f} times as long in plain PyTorch and"
        f" {record['over_zuko']:.2f} times as long with zuko."
    )


def identification_table(record: dict[str, Any]) -> str:
    """Test inputs whose task is named rightly by several flows, in percent, in three ways."""
    ways = ("density", "disagreement", "typicality")
    lines = head(["stream", "method", "seeds", *ways])
    for stream, method, cells in grouped(record):
        found = [cell["identified"] for cell in cells if cell.get("identified")]
        if found:
            values = " | ".join(percent([each[way] for each in found]) for way in ways)
            lines.append(f"| {stream} | `{method}` | {len(found)} | {values} |")
    return "\n".join(lines)


def grouped(record: dict[str, Any]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The cells of each stream and method, over seeds, in the order of the record."""
    keys = dict.fromkeys((cell["stream"], cell["method"]) for cell in record["cells"])
    return [
        (stream, method, [cell for cell in record["cells"] if (cell["stream"], cell["method"]) == (stream, method)])
        for stream, method in keys
    ]


def percent(values: list[float]) -> str:
    """The mean in percent, with half the width of its 95 % interval where there are several values."""
    mean, low, high = mean_interval([100 * value for value in values])
    return f"{mean:.1f} ± {(high - low) / 2:.1f}" if low == low else f"{mean:.1f}"
