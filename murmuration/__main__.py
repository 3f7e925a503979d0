"""The program `murmur`, also as `python -m murmuration`: before anything else is imported, Ctrl-C ends it quietly."""

import os
import signal
import sys


def leave(number: int, frame: object) -> None:
    """End at once: nothing was read or written yet."""
    os._exit(128 + number)


def main() -> int:
    """Run the command in `sys.argv` and return its exit code."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual:
        signal.signal(signal.SIGINT, leave)
    from murmuration.cli import load

    run = load()
    if usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.argv[0] = "murmur"  # the command that a run records
    sys.exit(main())
