"""Interrupts between training steps: Ctrl-C, SIGTERM and SIGHUP wait until the state of a run is whole."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CHECKPOINT_SECONDS = 30.0  # between checkpoints, by default: a killed run loses at most about this much
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # those of them that this system has
STARTED = (os.getpid(), os.getppid())  # this process and its parent, when it began
IMPORTS = "<frozen importlib"  # files of frames inside an import
PATIENCE, AGAIN = 20.0, 0.1  # seconds that a signal waits for the end of an import at most, and between two looks
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))

stopped: list[int] = []  # signals that `stop` has raised; code in C may turn the exception into another
_waiting: dict[int, float] = {}  # signals that wait for the end of an import, and until when


class Stopped(KeyboardInterrupt):
    """An interrupt with the number of its signal: Ctrl-C (SIGINT), SIGTERM or SIGHUP."""

    def __init__(self, text: str = "", number: int = signal.SIGINT) -> None:
        super().__init__(*([text] if text else []))
        self.number = number


def stop(number: int, frame: Any) -> None:
    """The handler of a signal that raises it as an exception, so that files are closed and locks removed.

    Inside an import it is sent again a moment later: extension modules that are interrupted in their initialisation
    print tracebacks of their own, or abort.
    """
    until = _waiting.setdefault(number, time.monotonic() + PATIENCE)
    if is_importing(frame) and time.monotonic() < until:
        again = threading.Timer(AGAIN, _send_again, [number])
        again.daemon = True
        return again.start()
    del _waiting[number]
    stopped.append(number)
    raise Stopped(number=number)


def _send_again(number: int) -> None:
    if number in _waiting:
        signal.raise_signal(number)


def was_stopped() -> bool:
    """Whether a signal came since `take_stopped`."""
    return bool(stopped or _waiting)


def take_stopped() -> list[int]:
    """Signals since the last call, also those that wait for the end of an import, which are not sent again."""
    taken = [*stopped, *_waiting]
    stopped.clear()
    _waiting.clear()
    return taken


def unheard(number: int, frame: Any) -> None:
    """The handler of a signal that is late: the command has ended, and only says how."""


def is_importing(frame: Any) -> bool:
    """Whether a frame is inside an import."""
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    return frame is not None


USUAL = (signal.default_int_handler, signal.SIG_DFL, stop)  # handlers that are replaced; others are the caller's own


@contextmanager
def handled(handler: Callable[[int, Any], None], wanted: bool = True) -> Iterator[None]:
    """Let a function handle the signals that have their usual handlers.

    Handlers of the caller's own are left alone, and so is everything in threads other than the main one, which receive
    no signals.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {each: signal.getsignal(each) for each in SIGNALS if wanted and main}
    taken = {each: usual for each, usual in before.items() if usual in USUAL}
    try:
        for each in taken:
            signal.signal(each, handler)
        yield
    finally:
        for each, usual in taken.items():
            signal.signal(each, usual)


@contextmanager
def deferred_interrupts(wanted: bool = True, impatient: bool = True) -> Iterator[Callable[[], int]]:
    """A function that tells the number of a signal that came since, or 0; a second signal raises `Stopped` at once.

    One that nobody acted on is raised at the end. Unless `impatient`, a second one is not heard: a launcher of several
    processes sends one signal twice, and waits before it kills them.
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
