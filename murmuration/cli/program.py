"""The program `murmur`: its commands, its exit codes and its error messages."""

import errno
import os
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Annotated, Any

import typer

import murmuration
from murmuration.cli import (
    add_members,
    audit,
    calibrate,
    compare,
    drop_members,
    embed,
    evaluate,
    lists,
    merge,
    monitor,
    plan,
    predict,
    resume,
    selftest,
    train,
)
from murmuration.cli.console import NOTHING_WRITTEN, Interrupted, PlainCommand, PlainGroup
from murmuration.cli.options import RecipeOptions, grouped
from murmuration.system.errors import Failure, Misuse, nearest, notes_once, printable, shortened, unknown
from murmuration.system.interrupts import Stopped, handled, stop, take_stopped, unheard
from murmuration.system.memory import keep_freed_memory
from murmuration.system.plugins import plugins
from murmuration.training.foreign_names import FOREIGN

UsageError: Any = typer.BadParameter.__mro__[1]  # wherever this version of typer keeps it
SPINS = "20000"  # of an idle thread, before it sleeps; libgomp takes 300,000
REPEAT = "repeat the command, or continue a run that was begun with murmur resume"
DEBUG, COMPLETE = "MURMUR_DEBUG", "_MURMUR_COMPLETE"

app = typer.Typer(rich_markup_mode="rich", cls=PlainGroup)


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
    """Ensembles of neural networks.

    Ensembles of neural networks with calibrated uncertainty: training, conformal prediction, evaluation, reports.

    Examples:
        murmur train digits --members 5
        murmur train prices.csv --target price --out runs/prices
        murmur predict runs/prices new.csv --out predictions.csv
        murmur compare digits --recipes single,deep-ensemble
        murmur audit forest.csv
        murmur list recipes
    """


def _add(name: str, command: Any, panel: str) -> None:
    """Add a command, or a `typer.Typer` of several; the help of a function is its docstring."""
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=panel)
    else:
        app.command(name, cls=PlainCommand, rich_help_panel=panel)(grouped(command))


for _command in (
    *(train.train, plan.plan, resume.resume, evaluate.evaluate, calibrate.calibrate, predict.predict, monitor.monitor),
    *(add_members.add_members, drop_members.drop_members, merge.merge, embed.embed, compare.compare, audit.audit),
    *(lists.list_names, selftest.selftest),
):
    _add(_command.__name__.removesuffix("_names").replace("_", "-"), _command, "Commands")
plugins("murmuration.extensions")
for _name, _command in plugins("murmuration.commands", Callable).items():
    _add(_name, _command, "Studies and applications")


def main(arguments: list[str] | None = None, notes: Sequence[Warning | str] = ()) -> int:
    """Run one command and return its exit code: 0 done, 2 misuse, 1 failure, 130 Ctrl-C, 143 SIGTERM.

    `notes` are warnings of the import of this module.
    """
    keep_freed_memory()  # before torch is imported and starts threads
    if "OMP_WAIT_POLICY" not in os.environ:  # idle OpenMP threads sleep sooner: spinning ones starve busy cores
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    words = sys.argv[1:] if arguments is None else arguments
    warnings.showwarning = partial(_say_note, words)
    for note in notes:
        _say_note(words, note)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    take_stopped()
    try:
        with handled(stop):
            try:
                return _run(words)
            except BaseException as error:
                with handled(unheard):
                    return _ended_by(error, take_stopped(), words)
            finally:
                take_stopped()  # one that waits for an import would come to whoever called the command
    except Stopped as error:  # it came before the command had begun or after its end
        return 128 + error.number


def _ended_by(error: BaseException, signals: list[int], arguments: list[str]) -> int:
    """Print the error that ended a command in one line and return the exit code; `signals` came before it."""
    if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return _end(f"interrupted: {in_flags(str(error), arguments) or NOTHING_WRITTEN}", 128 + _signal_of(error))
    if not isinstance(error, Exception) or os.environ.get(DEBUG):
        raise error
    if signals:  # one came inside an extension module, which raised an error of its own, or waits for an import
        return _end(f"interrupted: {REPEAT}", 128 + signals[-1])
    return _end(f"error: {_message(error, arguments)}", 2 if isinstance(error, Misuse | UsageError) else 1)


def _signal_of(error: BaseException | None) -> int:
    """Return the number of the signal that caused an interrupt; that of Ctrl-C by default."""
    while error is not None:
        if isinstance(error, Stopped):
            return error.number
        error = error.__context__
    return signal.SIGINT


def _say_note(arguments: list[str], message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning as one line, in the words of the command line."""
    if _silent():
        return
    print(f"note: {shortened(in_flags(str(message), arguments))}", file=sys.stderr)


@notes_once
def _run(arguments: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    if COMPLETE in os.environ:  # the shell asks for completions, as `murmur --install-completion` told it to
        command.main(prog_name="murmur")
    for option, value in zip(["", *arguments], [*arguments, ""], strict=True):
        if option.startswith("--") and (option.endswith("=") or (value == "" and option != arguments[-1])):
            raise Misuse(f"{option.rstrip('=')} '' is empty: give a value, or leave the option out")
    words = [argument for argument in arguments if not argument.startswith("-")]
    if words and words[0] not in command.commands:
        raise unknown("command", words[0], command.commands)
    code = 0
    try:
        with command.make_context("murmur", list(arguments) or ["--help"]) as context:
            _invoke(command, context, words)
    except typer.Exit as exit:
        code = int(exit.exit_code)
    sys.stdout.flush()
    return code


def _invoke(command: Any, context: Any, words: list[str]) -> None:
    """Run a command; as one of several processes, if a launcher such as torchrun has started them."""
    if not _ranks():
        return command.invoke(context)
    from murmuration.runs.processes import process_group, refusing_together

    if words[:1] not in (["train"], ["resume"]):
        raise Misuse("several processes are for murmur train and murmur resume: call this command without torchrun")
    with process_group():
        refusing_together(command.invoke)(context)


def _ranks() -> bool:
    """Return whether this is one of several processes."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"


def _silent() -> bool:
    """Return whether another process prints for this one."""
    return _ranks() and os.environ["RANK"] != "0"


def _end(text: str, code: int) -> int:
    if not _silent():
        print(printable(text), file=sys.stderr)
    return code


def _message(error: Exception, arguments: list[str]) -> str:
    """Return the error as one line, in the words of the command line."""
    if isinstance(error, UsageError):
        return " ".join(_usage(error, arguments).split())
    if isinstance(error, Misuse | Failure):
        return in_flags(" ".join(str(error).split()), arguments)
    if isinstance(error, OSError) and error.strerror:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        return f"{reason}: {error.filename}" if error.filename else reason
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error):
        needed = re.search(r"allocate (\d+) bytes", str(error))
        more = "" if needed is None else f": {int(needed[1]) / 2**30:.3g} GiB at once"
        return f"not enough memory{more}; write smaller sizes, or --stream for data larger than memory"
    first = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {first} (run again with {DEBUG}=1 for the traceback)"


def _usage(error: Any, arguments: list[str]) -> str:
    """Name the bad argument or option of a command, and what to write instead."""
    path = error.ctx.command_path if error.ctx is not None else "murmur"
    kind, parameter = type(error).__name__, getattr(error, "param", None)
    if kind == "NoSuchOption":
        return f"unknown option {error.option_name}: {_suggestion(error.option_name, error.ctx.command, path)}"
    if parameter is None:
        return f"{error.format_message().rstrip('.')}: see {path} --help"
    name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar or parameter.name
    if kind == "MissingParameter":
        return f"{name} is missing: see {path} --help for an example"
    reason = error.message.split(",")[0].rstrip(".")
    return f"{name} {_value_of(parameter.opts, arguments)}: {reason[:1].lower()}{reason[1:]}, see {path} --help"


def _suggestion(got: str, command: Any, where: str) -> str:
    """Suggest options of the command that resemble the unknown one, else the commands that have it."""
    options, answers = _options(command), [field.name for field in fields(RecipeOptions)]
    if command.name == "compare" and got.removeprefix("--") in answers:
        return f"write it after a recipe, such as --recipes single,deep-ensemble:{got.removeprefix('--')}=..."
    meant = "--" + FOREIGN.get(got.lstrip("-").replace("-", "_"), "").partition("=")[0].replace("_", "-")
    meant = "--loss" if meant == "--likelihood" else meant
    if meant in options:
        return f"write {meant}; see {where} --help"
    if command.name == "add-members" and got == "--members":
        return f"write the number, at least 1, after the run: {where} RUN 5"
    begun = [name for name in options if name.startswith(got)]
    owners = [name for name, other in _commands(typer.main.get_command(app), "murmur") if got in _options(other)]
    if owners and not begun:
        return f"it is an option of {' and '.join(owners)}; see {where} --help"
    plain = {name.lstrip("-"): name for name in options}
    near = begun or [plain[name] for name in [nearest(got.lstrip("-"), plain)] if name]
    return f"did you mean {' or '.join(near)}? See {where} --help" if near else f"see {where} --help"


def _options(command: Any) -> list[str]:
    return [name for parameter in command.params for name in parameter.opts if name.startswith("-")]


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all commands below one, with the words that call them."""
    inside = getattr(command, "commands", {})
    if not inside:
        yield path, command
    for name, subcommand in inside.items():
        yield from _commands(subcommand, f"{path} {name}")


def in_flags(message: str, arguments: list[str]) -> str:
    """Rewrite keyword arguments in a message of the library as flags of the command that was called.

    The library writes settings as Python keywords, `device='cpu'`. Those that are options of this command become
    `--device cpu`, with the option's placeholder where no value is given (`target=...`), and `val=` alone becomes
    `--val`. A list becomes its items, `seeds=[0, 1]` is `--seeds 0,1`; one of other words, such as
    `init_from=[one network for each member]`, is Python and stays as it is. A keyword that the user wrote inside a
    value, such as `momentum=2` in `--dynamics ivon:momentum=2`, stays as it is, and so does a call in Python,
    `mm.load('runs/x', net=...)`; but `mm.resume('runs/x')` is the command `murmur resume runs/x`.
    """
    message = re.sub(r"mm\.resume\('([^']*)'\)", lambda match: f"murmur resume {shlex.quote(match[1])}", message)
    command: Any = typer.main.get_command(app)
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    for parameter in command.params:
        inside = re.compile(rf"[:,]\s*{parameter.name}\s*=")
        if parameter.opts[0].startswith("--") and not any(inside.search(word) for word in arguments):
            calls_and_rest = re.split(r"(\bmm\.\w+\([^()]*\))", message)  # every other part is a call
            message = "".join(p if i % 2 else _with_flag(p, parameter) for i, p in enumerate(calls_and_rest))
    return message


def _with_flag(message: str, parameter: Any) -> str:
    plain, bare = r"(?P<plain>[^\s'\"(\[,;:)][^\s'\"(]*?)(?=[,;:.)]*(?:\s|$))", r"(?P<bare>)(?=[\s,;:)]|$)"
    items = r"[\[(](?P<items>'?[\w.+-]+'?(?:, '?[\w.+-]+'?)*),?[\])]"  # of a list or tuple
    value = rf"\.\.\.|'(?P<quoted>[^']*)'|{items}|{plain}|{bare}"

    def flag(match: re.Match[str]) -> str:
        text = match["quoted"] if match["quoted"] is not None else match["plain"]
        if match["items"] is not None:
            text = re.sub("'|, ", lambda part: part[0].strip("' "), match["items"])
        if getattr(parameter, "is_flag", False) or match["bare"] is not None:
            return str(parameter.opts[0])
        return f"{parameter.opts[0]} {parameter.metavar if text is None else shlex.quote(text)}"

    return re.sub(rf"(?<![\w:,.=-]){parameter.name}=(?:{value})", flag, message)


def _value_of(names: list[str], arguments: list[str]) -> str:
    """Return the value after the last occurrence of an option, or ""."""
    for place, argument in reversed(list(enumerate(arguments))):
        name, sign, value = argument.partition("=")
        if name in names:
            return value if sign else "".join(arguments[place + 1 : place + 2])
    return ""
