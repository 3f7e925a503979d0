"""Interrupts between training steps: Ctrl-C, SIGTERM and SIGHUP are deferred until the state of a run is consistent."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CHECKPOINT_SECONDS = 30.0  # between checkpoints, by default: a killed run loses at most about this much
STARTED = (os.getpid(), os.getppid())  # this process and its parent, when it started
IMPORTS = "<frozen importlib"  # files of frames inside an import
MAX_IMPORT_SECONDS, RETRY_SECONDS = 20.0, 0.1  # a signal waits for the end of an import; between two checks
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

stopped: list[int] = []  # signals that `stop` has raised; code in C may turn the exception into another
_waiting: dict[int, float] = {}  # signals that wait for the end of an import, and until when


class Stopped(KeyboardInterrupt):
    """An interrupt with the number of its signal: Ctrl-C (SIGINT), SIGTERM or SIGHUP."""

    def __init__(self, text: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(*([text] if text else []))
        self.number = number


def stop(number: int, frame: Any) -> None:
    """Handle a signal by raising an exception, so that files are closed and locks removed.

    Inside an import the signal is sent again a moment later: extension modules that are interrupted in their
    initialisation print tracebacks, or abort.
    """
    until = _waiting.setdefault(number, time.monotonic() + MAX_IMPORT_SECONDS)
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    if frame is not None and time.monotonic() < until:
        timer = threading.Timer(RETRY_SECONDS, _send_again, [number])
        timer.daemon = True
        return timer.start()
    del _waiting[number]
    stopped.append(number)
    raise Stopped(number=number)


def _send_again(number: int) -> None:
    if number in _waiting:
        signal.raise_signal(number)


def was_stopped() -> bool:
    """Return whether a signal was received since `take_stopped`."""
    return bool(stopped or _waiting)


def take_stopped() -> list[int]:
    """Return and forget the signals since the last call, also those that wait for the end of an import."""
    signals = [*stopped, *_waiting]
    stopped.clear()
    _waiting.clear()
    return signals


def unheard(number: int, frame: Any) -> None:
    """Ignore a signal that arrives after the command has ended."""


USUAL = (signal.default_int_handler, signal.SIG_DFL, stop)  # handlers that may be replaced; others are the caller's


@contextmanager
def handled(handler: Callable[[int, Any], None], wanted: bool = True) -> Iterator[None]:
    """Let a function handle the signals that have their usual handlers.

    Handlers that the caller installed stay, and nothing changes in threads other than the main one, which receive no
    signals.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS if wanted and main}
    replaced = {number: usual for number, usual in before.items() if usual in USUAL}
    try:
        for number in replaced:
            signal.signal(number, handler)
        yield
    finally:
        for number, usual in replaced.items():
            signal.signal(number, usual)


@contextmanager
def deferred_interrupts(wanted: bool = True, impatient: bool = True) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the first signal received since entry, or 0.

    A second signal raises `Stopped` at once, unless `impatient` is False: a launcher of several processes sends a
    signal twice, and waits before it kills them. At the end of the block, a received signal raises `Stopped`.
    """
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1 and impatient:
            raise Stopped(number=number)

    with handled(note, wanted):
        yield lambda: received[0] if received else 0
    if received:
        raise Stopped(number=received[0])
