"""The command line: one file per command, which parses arguments, calls the library once and prints the result."""

import warnings


def main(arguments: list[str] | None = None) -> int:
    """Run one command of `murmur` and return its exit code; the arguments are those of the process by default."""
    with warnings.catch_warnings(record=True) as notes:  # of plug-ins: printed as the notes of the command are
        from murmuration.cli import program

    return program.main(arguments, [note.message for note in notes])
