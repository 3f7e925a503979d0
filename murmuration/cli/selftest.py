"""`murmur selftest`: check known results on this machine."""

import time
from collections.abc import Callable
from typing import Any

import typer

from murmuration.cli.console import print_json, print_table, say
from murmuration.cli.options import Json


def selftest(as_json: Json = False) -> None:
    """Check known results on this machine.

    Check known results on this machine in less than a minute: scores computed by hand, ensemble members against single
    networks bit for bit, saving and loading, interrupting and resuming, and a report.

    Examples:
        murmur selftest
        murmur selftest --json
    """
    from murmuration.cli.selftest_checks import CHECKS
    from murmuration.runs.directory import versions

    outcomes = [checked(name, check) for name, check in CHECKS.items()]
    passed = all(outcome["passed"] for outcome in outcomes)
    if as_json:
        print_json({"passed": passed, "checks": outcomes, "versions": versions()})
    else:
        rows = [["✓" if e["passed"] else "✗", e["name"], e["detail"], f"{e['seconds']:.1f} s"] for e in outcomes]
        print_table(["", "check", "found", "time"], rows, right=False)
        say("all checks passed" if passed else "some checks failed: see the rows with ✗")
    if not passed:
        raise typer.Exit(1)


def checked(name: str, check: Callable[[], str]) -> dict[str, Any]:
    """Return the outcome of one check; an error is a failed check."""
    start = time.perf_counter()
    try:
        detail, passed = check(), True
    except Exception as error:  # a broken installation may raise anything
        detail, passed = f"{type(error).__name__}: {error}", False
    return {"name": name, "passed": passed, "detail": detail, "seconds": time.perf_counter() - start}
