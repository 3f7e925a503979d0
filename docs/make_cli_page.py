"""Write docs/cli.md: every command with its arguments and options, made from their declarations.

python docs/make_cli_page.py
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "cli.md"
OPENING = """# The command line

Every command, with all its options. The page is made from the declarations of the program by
`python docs/make_cli_page.py`; in a terminal, `--help` shows the common options of a command and `--help-all` all.
`--json` prints a result as JSON. Exit codes: 0 done, 1 failure, 2 misuse, 130 Ctrl-C, 143 SIGTERM.
"""
HIDDEN = {"help_all", "install_completion", "show_completion"}


def prose(text: str) -> str:
    """Return a help text as Markdown: its signs are signs, and code stays code.

    >>> prose("*, or `head.*` of <data>")
    '\\\\*, or `head.*` of &lt;data>'
    """
    escape = {"*": r"\*", "[": r"\[", "]": r"\]", "<": "&lt;", "|": r"\|"}
    parts = re.split(r"(`[^`]*`)", text.replace(r"\[", "["))
    return "".join(
        part if part.startswith("`") else re.sub(r"[*\[\]<|]", lambda m: escape[m[0]], part) for part in parts
    )


def default_of(parameter: Any) -> str:
    """Return a sentence with the default of an option, or nothing if there is none to show."""
    shown = parameter.show_default
    value = shown.strip("()") if isinstance(shown, str) else parameter.default
    if shown is False or value is None or value is False or value == () or callable(value):
        return ""
    return f" Default: {value}." if isinstance(shown, str) else f" Default: `{value}`."


def row(parameter: Any) -> str:
    """Return the line of an argument or an option."""
    metavar = parameter.metavar or ""
    if parameter.param_type_name == "argument":
        names = f"`{metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(
            f"`{name} {metavar}`".replace(" `", "`") for name in parameter.opts + parameter.secondary_opts
        )
    help_text = prose(" ".join((parameter.help or "").split()))
    return f"- {names}: {help_text}{default_of(parameter)}"


def groups(command: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield titles and parameters: arguments, options of the command itself, then its named groups."""
    parameters = [parameter for parameter in command.params if parameter.name not in HIDDEN]
    titles = ["Arguments", "Options"]
    by_title: dict[str, list[Any]] = {title: [] for title in titles}
    for parameter in parameters:
        fallback = "Arguments" if parameter.param_type_name == "argument" else "Options"
        by_title.setdefault(parameter.rich_help_panel or fallback, []).append(parameter)
    yield from ((title, rows) for title, rows in by_title.items() if rows)


def section(command: Any, words: list[str]) -> str:
    """Return the section of a command."""
    examples, _, about = (command.help or "").removeprefix("Examples:\n\n").rpartition("[/cyan]\n\n")
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join(
        [*words, "[OPTIONS]", *(a.metavar if a.required else f"[{a.metavar}]" for a in arguments)]
        + (["COMMAND [ARGS]..."] if getattr(command, "commands", None) else [])
    )
    parts = [f"## {' '.join(words)}", prose(about), f"```text\n{usage}\n```"]
    if examples:
        parts.append("Examples:\n\n```text\n" + examples.removeprefix("[cyan]").replace(r"\[", "[") + "\n```")
    parts += ["\n".join([f"**{title}**\n", *map(row, rows)]) for title, rows in groups(command)]
    return "\n\n".join(parts) + "\n"


def contents(program: Any) -> str:
    """Return the list of commands by group, each with a link and its first line."""
    by_panel: dict[str, list[str]] = {}
    for name, command in program.commands.items():
        line = f"- [`{name}`](#murmur-{name}): {prose(command.short_help or '')}"
        by_panel.setdefault(command.rich_help_panel, []).append(line)
    return "\n\n".join(f"**{panel}**\n\n" + "\n".join(lines) for panel, lines in by_panel.items()) + "\n"


def commands_of(command: Any, words: list[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield a command and the words that call it, then the commands inside it."""
    yield command, words
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from commands_of(subcommand, [*words, name])


def page() -> str:
    """Return the text of the page."""
    from typer.main import get_command

    from murmuration.cli.program import app

    program = get_command(app)
    sections = [section(command, words) for command, words in commands_of(program, ["murmur"])]
    return "\n".join([OPENING, contents(program), *sections])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
