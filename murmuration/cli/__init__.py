"""The program `murmur`: its commands, and how every one of them ends."""

import os
import sys
from difflib import get_close_matches
from typing import Annotated, Any

import typer

import murmuration
from murmuration.cli import (
    audit,
    calibrate,
    compare,
    evaluate,
    explore,
    lists,
    predict,
    prune,
    reproduce,
    resume,
    selftest,
    superres,
    train,
)
from murmuration.cli.screen import NOTHING_WRITTEN, Interrupted, help_text
from murmuration.errors import Failure, Misuse, unknown
from murmuration.memory import keep_freed_memory

HELP = help_text(
    "Ensembles of neural networks that say how far each prediction can be trusted.",
    "murmur train digits --members 5",
    "murmur train prices.csv --target price --out runs/prices",
    "murmur predict runs/prices new.csv --out predictions.csv",
    "murmur compare digits --recipes single,deep-ensemble",
    "murmur audit anyones-predictions.csv",
    "murmur list recipes",
)
UsageError: Any = typer.BadParameter.__mro__[1]  # wherever this version of typer keeps it
DEBUG = "MURMUR_DEBUG"

app = typer.Typer(help=HELP, add_completion=False, rich_markup_mode="rich")


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"murmur {murmuration.__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    pass


for _name, _command, _help in (
    ("train", train.train, train.HELP),
    ("resume", resume.resume, resume.HELP),
    ("evaluate", evaluate.evaluate, evaluate.HELP),
    ("calibrate", calibrate.calibrate, calibrate.HELP),
    ("predict", predict.predict, predict.HELP),
    ("prune", prune.prune, prune.HELP),
    ("compare", compare.compare, compare.HELP),
    ("audit", audit.audit, audit.HELP),
    ("explore", explore.explore, explore.HELP),
    ("reproduce", reproduce.reproduce, reproduce.HELP),
    ("list", lists.list_names, lists.HELP),
    ("selftest", selftest.selftest, selftest.HELP),
):
    app.command(_name, help=_help, short_help=_command.__doc__)(_command)
app.add_typer(superres.app, name="superres", short_help="Super-resolution with a standard deviation for every pixel.")


def main(arguments: list[str] | None = None) -> int:
    """The exit code of one command: 0 done, 2 misuse, 1 failure, 130 interrupted; every error is one line."""
    keep_freed_memory()  # before torch is imported and starts threads
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return _run(given)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, Interrupted) as error:
        return _end(f"interrupted: {str(error) or NOTHING_WRITTEN}", 130)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        return _end(f"error: {_told(error, given)}", 2 if isinstance(error, Misuse | UsageError) else 1)


def _run(arguments: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    words = [argument for argument in arguments if not argument.startswith("-")]
    if words and words[0] not in command.commands:
        raise unknown("command", words[0], command.commands)
    try:
        with command.make_context("murmur", list(arguments) or ["--help"]) as context:
            command.invoke(context)
    except typer.Exit as exit:
        code = int(exit.exit_code)
    else:
        code = 0
    sys.stdout.flush()
    return code


def _end(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


def _told(error: Exception, arguments: list[str]) -> str:
    """What went wrong, on one line."""
    if isinstance(error, UsageError):
        return " ".join(_usage(error, arguments).split())
    if isinstance(error, Misuse | Failure):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    first = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {first} (run again with {DEBUG}=1 for the traceback)"


def _usage(error: Any, arguments: list[str]) -> str:
    """What is wrong with the words of a command: the bad one, and what to write instead."""
    where = error.ctx.command_path if error.ctx is not None else "murmur"
    kind, parameter = type(error).__name__, getattr(error, "param", None)
    if kind == "NoSuchOption":
        known = [name for each in error.ctx.command.params for name in each.opts if name.startswith("-")]
        near = get_close_matches(error.option_name, known, n=1, cutoff=0.5)
        return f"unknown option {error.option_name}: {f'did you mean {near[0]}? S' if near else 's'}ee {where} --help"
    if parameter is None:
        return f"{error.format_message().rstrip('.')}: see {where} --help"
    name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar or parameter.name
    if kind == "MissingParameter":
        return f"{name} is missing: see {where} --help for an example"
    told = error.message.split(",")[0].rstrip(".")
    return f"{name} {_value_of(parameter.opts, arguments)}: {told[:1].lower()}{told[1:]}, see {where} --help"


def _value_of(names: list[str], arguments: list[str]) -> str:
    """What was written after an option, the last time it occurs; "" if it cannot be found."""
    for place, argument in reversed(list(enumerate(arguments))):
        name, sign, value = argument.partition("=")
        if name in names:
            return value if sign else "".join(arguments[place + 1 : place + 2])
    return ""
