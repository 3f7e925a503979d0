"""The tables of long-tailed recognition, from its record: scores of every row, and differences between rows."""

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from table_text import head, mean_interval

GROUPS = ("all", "many", "medium", "few")
CHANGED = ("re-trained heads", "normalised heads", "transferred covariance")
COMPARISONS = {  # question -> row, and the row that it is compared with
    "the loss: balanced softmax, not cross-entropy": ("balanced-softmax", "cross-entropy"),
    "the loss: class-balanced": ("class-balanced", "cross-entropy"),
    "the loss: LDAM, re-weighted late": ("ldam-drw", "cross-entropy"),
    **{
        f"the sampler: {name}": (f"{name} sampler", "cross-entropy")
        for name in ("square-root", "balanced", "progressive")
    },
    "after training: logit adjustment": ("cross-entropy, logit adjustment", "cross-entropy"),
    **{f"after training: {name}": (f"cross-entropy, {name}", "cross-entropy") for name in CHANGED},
    "logit adjustment after training, not in the loss": ("cross-entropy, logit adjustment", "balanced-softmax"),
    "three networks, not one: cross-entropy": ("cross-entropy, ensemble", "cross-entropy"),
    "three networks, not one: balanced softmax": ("balanced-softmax, ensemble", "balanced-softmax"),
    "three networks, not one: LDAM, re-weighted late": ("ldam-drw, ensemble", "ldam-drw"),
    "RIDE, not three networks of its loss": ("ride", "ldam-drw, ensemble"),
    "RIDE: mean logits, not mean probabilities": ("ride, mean logits", "ride"),
    "SADE, not three networks of balanced softmax": ("sade", "balanced-softmax, ensemble"),
    "SADE: mean logits, not mean probabilities": ("sade, mean logits", "sade"),
    "SADE by mean logits, not three networks of balanced softmax": ("sade, mean logits", "balanced-softmax, ensemble"),
    "SADE: weights found on test images, not equal ones": ("sade, test-time weights", "sade"),
    "repulsive heads, not one network of their loss": ("repulsive heads", "balanced-softmax"),
    "repulsive heads, not three networks": ("repulsive heads", "balanced-softmax, ensemble"),
}
Rows = dict[str, dict[int, dict[str, Any]]]  # name -> seed -> scores


def longtail_table(record: dict[str, Any]) -> str:
    """A table of mean class accuracy in percent and NLL for each data set and factor, the best rows first.

    Behind ± is half of a 95 % interval: of several seeds the t-interval of their mean, of one that over test examples.
    """
    return "\n\n".join(_scores(title, rows) for title, _, rows in _cells(record))


def longtail_differences(record: dict[str, Any]) -> str:
    """A table of differences between rows of the same seeds for each data set at its largest factor."""
    largest: dict[str, tuple[float, str]] = {}
    for _, (data, factor), rows in _cells(record):
        if factor > largest.get(data, (0.0, ""))[0]:
            largest[data] = factor, _differences(f"**{data}, imbalance {factor:g}**", rows)
    return "\n\n".join(text for _, text in largest.values())


def _cells(record: dict[str, Any]) -> Iterator[tuple[str, tuple[str, float], Rows]]:
    """Title, data and factor, and rows of every table."""
    found: dict[tuple[str, float], Rows] = {}
    about: dict[tuple[str, float], str] = {}
    for run in record["runs"]:
        key, settings = (run["data"], run["factor"]), run["settings"]
        about[key] = (
            f"**{run['data']}, imbalance {run['factor']:g}**: {run['examples']['train']:,} training examples; "
            f"{settings['net']}, {settings['epochs']} epochs, batches of {settings['batch_size']}, learning rate "
            f"{settings['lr']:g}{', bf16' if settings.get('precision') == 'bf16' else ''}"
        )
        for name, scores in run["rows"].items():
            found.setdefault(key, {}).setdefault(name, {})[run["seed"]] = scores
    for key, rows in sorted(found.items(), key=lambda item: (item[0][0], -item[0][1])):
        yield f"{about[key]}; {_number(max(map(len, rows.values())))}", key, rows


def _scores(title: str, rows: Rows) -> str:
    groups = [group for group in GROUPS if any(group in each for row in rows.values() for each in row.values())]
    seeds = max(map(len, rows.values()))
    means = {name: {group: _mean(row, group) for group in (*groups, "nll")} for name, row in rows.items()}
    best = {group: max(mean[group] for mean in means.values()) for group in groups}
    least = min(mean["nll"] for mean in means.values())
    lines = [title + ".", "", *head(["method", *groups, "NLL"])]
    for name, row in sorted(rows.items(), key=lambda item: -means[item[0]]["all"]):
        texts = [
            _bold(_accuracy([each[group] for each in row.values()]), means[name][group] == best[group])
            for group in groups
        ]
        nll = _bold(_spread([each["nll"] for each in row.values()], "{:.3f}".format), means[name]["nll"] == least)
        fewer = f" ({_number(len(row))})" if len(row) < seeds else ""
        lines.append(f"| {name}{fewer} | {' | '.join(texts)} | {nll} |")
    return "\n".join(lines)


def _differences(title: str, rows: Rows) -> str:
    groups = [group for group in GROUPS if any(group in each for row in rows.values() for each in row.values())]
    lines = [title + ", points of mean class accuracy.", "", *head(["comparison", *groups])]
    for question, (name, other) in COMPARISONS.items():
        seeds = sorted(set(rows.get(name, {})) & set(rows.get(other, {})))
        if not seeds:
            continue
        texts = []
        for group in groups:
            values = [100 * (rows[name][seed][group][0] - rows[other][seed][group][0]) for seed in seeds]
            texts.append(_bold(_spread(values, _signed), _is_clear(values)))
        lines.append(f"| {question} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _mean(row: dict[int, dict[str, Any]], group: str) -> float:
    values = [each[group] for each in row.values()]
    return fmean(value if group == "nll" else value[0] for value in values)


def _accuracy(scores: list[list[float]]) -> str:
    if len(scores) == 1:
        value, low, high = scores[0]
        return f"{100 * value:.1f} ± {50 * (high - low):.1f}"
    return _spread([100 * each[0] for each in scores], "{:.1f}".format)


def _spread(values: list[float], text: Callable[[float], str]) -> str:
    """The mean, and half of its t-interval if there are several values."""
    if len(values) == 1:
        return text(values[0])
    value, _, high = mean_interval(values)
    return f"{text(value)} ± {text(high - value).lstrip('+')}"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # -0.0 + 0.0 is 0.0


def _is_clear(values: list[float]) -> bool:
    """Whether zero is outside the t-interval of several values."""
    if len(values) == 1:
        return False
    _, low, high = mean_interval(values)
    return low > 0 or high < 0


def _bold(text: str, so: bool) -> str:
    return f"**{text}**" if so else text


def _number(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}"
