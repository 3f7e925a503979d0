"""Interrupts between training steps: Ctrl-C and SIGTERM wait until the state of a run is whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

USUAL: dict[signal.Signals, Any] = {  # handlers that are replaced; others are the caller's own
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextmanager
def deferred_interrupts(wanted: bool = True) -> Iterator[Callable[[], bool]]:
    """A function that tells whether Ctrl-C or SIGTERM came since; a second one raises `KeyboardInterrupt` at once.

    One that nobody acted on is raised at the end. Handlers of the caller's own are left alone, and so is everything in
    threads other than the main one, which receive no signals.
    """
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    taken = [each for each, usual in USUAL.items() if wanted and main and signal.getsignal(each) == usual]
    for each in taken:
        signal.signal(each, note)
    try:
        yield lambda: bool(received)
    finally:
        for each in taken:
            signal.signal(each, USUAL[each])
    if received:
        raise KeyboardInterrupt
