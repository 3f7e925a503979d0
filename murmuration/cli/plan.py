"""`murmur plan`: the costs of a training run before it is paid for."""

import time
from typing import TYPE_CHECKING, Annotated

import murmuration.cli.options as options
from murmuration.cli.console import help_text, print_json, print_table
from murmuration.cli.train import Link, Loss, NetName, NoiseStd

if TYPE_CHECKING:
    from murmuration.training.costs import CostEstimate

PROGRAM = 0.2  # seconds of Python and of the options of all commands, before a command begins
HELP = help_text(
    "Predict time, memory, disk and communication of `murmur train` with the same options, from a few steps on the "
    "real network and batch. Nothing is written. Times are those of this machine as it is now, with whatever else "
    "runs on it. --ranks divides members among processes, each with a machine or GPU like this one; --budget proposes "
    "members, epochs and a recipe that fit, and says what they give up.",
    "murmur plan digits --members 10 --epochs 30",
    "murmur plan digits --recipe forde --members 10 --ranks 5",
    "murmur plan digits --net small-cnn --members 20 --budget 30m",
    "murmur plan digits --json",
)


@options.grouped
def plan(
    *,
    data: options.DataSource = "digits",
    recipe: Annotated[str, options.option("Method; see `murmur list recipes`.", "Recipe", "NAME")] = "deep-ensemble",
    net: NetName = None,
    answers: options.RecipeOptions,
    reading: options.DataOptions,
    training: options.TrainingOptions,
    noise_std: NoiseStd = None,
    link: Link = None,
    loss: Loss = None,
    ranks: Annotated[int, options.option("Processes that divide the members.", "Costs", "N")] = 1,
    budget: Annotated[
        str | None, options.option("Propose settings within a time such as 30m or 1h30m.", "Costs", "TIME")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Predict the costs of a training run from a few steps."""
    began = time.perf_counter(), time.process_time()
    from murmuration.training.costs import Seconds, estimate_costs, parse_budget

    if budget is not None:
        parse_budget(budget)
    chosen, settings = answers.recipe(recipe), training.settings()
    opened = reading.open(data, quiet=as_json)
    taken = Seconds(PROGRAM + time.perf_counter() - began[0], PROGRAM + time.process_time() - began[1])
    found = estimate_costs(
        options.network(net),
        opened,
        recipe=chosen,
        ranks=ranks,
        budget=budget,
        noise_std=noise_std,
        link=link,
        likelihood=loss,
        of_command=taken,
        **settings,
    )
    if as_json:
        return print_json(found.to_json())
    show_estimate(found)
    show_proposal(found, budget)


def show_estimate(found: "CostEstimate") -> None:
    """Tables of time, memory, disk and communication, then the proposal."""
    from murmuration.reports.formatting import duration, plural

    steps = found.steps_per_epoch * found.epochs
    of = f"{plural(found.members, 'member')}, {plural(found.epochs, 'epoch')}, {steps:,} steps, engine {found.engine}"
    on = "" if found.ranks == 1 else f", {found.ranks} ranks"
    times = {
        "imports and data": found.start,
        "first weights, engine, first steps": found.first,
        "training": found.training,
        "forward passes of evaluation": found.evaluation,
        "scores and report, about": found.report,
        "total": found.total,
        "a step": found.step,
    }
    rows = [[name, duration(each.wall), duration(each.cpu)] for name, each in times.items()]
    print_table(["time", "by the clock", "CPU time"], rows, title=f"{found.recipe}: {of}{on}")
    print_table(["memory of a process", "MB"], with_sum(found.memory, "peak, about"))
    print_table(["disk", "MB"], with_sum(found.disk, "sum"))
    if found.ranks > 1 and not found.exchanges:
        print("communication in a step: none, for members are independent of each other\n")
    for each in found.exchanges:
        terms = ", ".join(f"{name} = {value:,}" for name, value in each.terms.items())
        print(f"{each.what}: {each.formula} = {each.bytes_per_step:,.0f} bytes a step and rank ({terms})")
    if found.exchanges:
        print(
            f"communication: {found.bytes_per_step:,.0f} bytes a step, {found.bytes_in_total / 1e6:,.1f} MB in total\n"
        )
    measured = " and ".join(map(str, found.measured_members))
    print(f"- Measured with {measured} members on this machine as it is now.")


def with_sum(terms: dict[str, int], name: str) -> list[list[str]]:
    """Rows of bytes in MB, with their sum as the last."""
    rows = [[what, f"{size / 1e6:,.2f}"] for what, size in terms.items() if size]
    return [*rows, [name, f"{sum(terms.values()) / 1e6:,.2f}"]]


def show_proposal(found: "CostEstimate", budget: str | None) -> None:
    """The settings that fit the budget as a command's options, and what they give up."""
    from murmuration.reports.formatting import duration

    if budget is None:
        return
    if found.proposal is None:
        return print(f"- Nothing fits {budget}: even the smallest proposal takes longer. Give more time, or less data.")
    chosen = found.proposal
    told = f"--recipe {chosen.recipe} --members {chosen.members} --epochs {chosen.epochs}"
    print(f"- Fits {budget}: {told}, predicted {duration(chosen.seconds)}; given up: {chosen.given_up}.")
