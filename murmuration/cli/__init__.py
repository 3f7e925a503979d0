"""The command line: one file per command, which parses arguments, calls the library once and prints the result."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command of `murmur` and return its exit code; the arguments are those of the process by default."""
    from murmuration.cli import program

    return program.main(arguments)
