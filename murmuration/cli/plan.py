"""`murmur plan`: the costs of a training run before it is paid for."""

import time
from typing import Annotated

import murmuration as mm
import murmuration.cli.options as options
from murmuration.cli.console import print_json, print_table, say

PROGRAM = 0.2  # seconds of Python and of the options of all commands, before a command begins


def plan(
    *,
    data: options.DataSource = "digits",
    recipe: Annotated[
        str, options.documented("Recipe", "NAME"), options.Checked(options.check_recipe)
    ] = "deep-ensemble",
    net: options.NetName = None,
    answers: options.RecipeOptions,
    reading: options.ReadingOptions,
    training: options.TrainingOptions,
    objective: options.LossOptions,
    ranks: Annotated[int, options.documented("Costs", "N")] = 1,
    budget: Annotated[str | None, options.documented("Costs", "TIME")] = None,
    as_json: options.Json = False,
    help_all: options.HelpAll = False,
) -> None:
    """Predict the costs of a training run from a few steps.

    Predict time, memory, disk and communication of `murmur train` with the same options, from a few steps on the real
    network and batch. Nothing is written. Times are those of this machine as it is now, with whatever else runs on it.
    --ranks divides members among processes, each with a machine or GPU like this one; --budget proposes members, epochs
    and a recipe that fit, and says what they give up.

    Args:
        data: The data.
        recipe: Method; see `murmur list recipes`.
        net: The network.
        answers: Answers that replace those of the recipe.
        reading: How the data is read.
        training: Settings of training.
        objective: The likelihood.
        ranks: Processes that divide the members.
        budget: Propose settings within a time such as 30m or 1h30m.
        as_json: Whether to print JSON.
        help_all: Whether to show the help of all options.

    Examples:
        murmur plan digits --members 10 --epochs 30
        murmur plan digits --recipe forde --members 10 --ranks 5
        murmur plan digits --net small-cnn --members 20 --budget 30m
        murmur plan digits --json
    """
    began = time.perf_counter(), time.process_time()
    from murmuration.training.costs import Seconds, parse_budget

    if budget is not None:
        parse_budget(budget)
    parsed, settings = answers.recipe(recipe), training.settings()
    opened = reading.open(data, quiet=as_json)
    startup = Seconds(PROGRAM + time.perf_counter() - began[0], PROGRAM + time.process_time() - began[1])
    settings |= {"ranks": ranks, "budget": budget, **objective.settings()}
    estimate = mm.estimate_costs(options.network(net), opened, recipe=parsed, of_command=startup, **settings)
    if as_json:
        return print_json(estimate.to_json())
    show_estimate(estimate)
    show_proposal(estimate, budget)


def show_estimate(estimate: "mm.CostEstimate") -> None:
    """Print tables of time, memory, disk and communication."""
    from murmuration.reports.formatting import duration, plural

    steps = estimate.steps_per_epoch * estimate.epochs
    size = f"{plural(estimate.members, 'member')}, {plural(estimate.epochs, 'epoch')}, {steps:,} steps"
    ranks = "" if estimate.ranks == 1 else f", {estimate.ranks} ranks"
    times = {
        "imports and data": estimate.start,
        "first weights, engine, first steps": estimate.first,
        "training": estimate.training,
        "forward passes of evaluation": estimate.evaluation,
        "scores and report, about": estimate.report,
        "total": estimate.total,
        "a step": estimate.step,
    }
    rows = [[name, duration(seconds.wall), duration(seconds.cpu)] for name, seconds in times.items()]
    title = f"{estimate.recipe}: {size}, engine {estimate.engine}{ranks}"
    print_table(["time", "by the clock", "CPU time"], rows, title=title)
    print_table(["memory of a process", "MB"], with_sum(estimate.memory, "peak, about"))
    print_table(["disk", "MB"], with_sum(estimate.disk, "sum"))
    if estimate.ranks > 1 and not estimate.exchanges:
        say("communication in a step: none, for members are independent of each other\n")
    for exchange in estimate.exchanges:
        terms = ", ".join(f"{name} = {value:,}" for name, value in exchange.terms.items())
        say(f"{exchange.what}: {exchange.formula} = {exchange.bytes_per_step:,.0f} bytes a step and rank ({terms})")
    if estimate.exchanges:
        megabytes = estimate.bytes_in_total / 1e6
        say(f"communication: {estimate.bytes_per_step:,.0f} bytes a step, {megabytes:,.1f} MB in total\n")
    measured = " and ".join(map(str, estimate.measured_members))
    if estimate.caveat:
        say(f"- Times of training are {estimate.caveat}.")
    say(f"- Measured with {measured} members on this machine as it is now.")


def with_sum(terms: dict[str, int], name: str) -> list[list[str]]:
    """Return rows of bytes in MB, with their sum as the last."""
    rows = [[term, f"{size / 1e6:,.2f}"] for term, size in terms.items() if size]
    return [*rows, [name, f"{sum(terms.values()) / 1e6:,.2f}"]]


def show_proposal(estimate: "mm.CostEstimate", budget: str | None) -> None:
    """Print the settings that fit the budget as options, and what they give up."""
    from murmuration.reports.formatting import duration

    if budget is None:
        return
    if estimate.proposal is None:
        return say(f"- Nothing fits {budget}: even the smallest proposal takes longer. Give more time, or less data.")
    proposal = estimate.proposal
    flags = f"--recipe {proposal.recipe} --members {proposal.members} --epochs {proposal.epochs}"
    say(f"- Fits {budget}: {flags}, predicted {duration(proposal.seconds)}; given up: {proposal.given_up}.")
