"""Several processes that train one run: how they find each other, agree on what to train, and refuse together.

`torchrun` starts the processes and names them in the environment. Before training they compare data, recipe, plan,
network and software; an error of one of them is then raised by all, so that none waits for another.
"""

import functools
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from murmuration.core.engines import Ranks
from murmuration.core.engines.ranks import exchange_texts, in_process_group
from murmuration.runs.directory import MANIFEST
from murmuration.system.errors import Failure, Misuse, first_line
from murmuration.system.interrupts import STARTED, Stopped, was_stopped

POLL_SECONDS = 0.5  # between two checks whether the launcher is running
TIMEOUT, SECONDS = "MURMUR_RANK_TIMEOUT", 600.0  # environment: how long ranks wait for each other; its default
FACT_NAMES = {"data": "data", "recipe": "a recipe", "plan": "a plan", "net": "a network", "weights": "first weights"}

Result = TypeVar("Result")


class Agreements:
    """Counts the calls of `agree` in this process, so that an error is reported to the other ranks once."""

    count = 0


def launched_ranks() -> int:
    """Return the number of processes that `torchrun`, or another launcher, says it has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_first() -> bool:
    """Return whether this process prints and writes the run: the only one, or rank 0."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return launched_ranks() == 1 or os.environ["RANK"] == "0"


@contextmanager
def process_group() -> Iterator[None]:
    """Join the process group of the launched processes inside the block, unless there is one already."""
    if launched_ranks() == 1 or dist.is_initialized():
        yield
        return
    text = os.environ.get(TIMEOUT, str(SECONDS))
    try:
        seconds = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise Misuse(f"{TIMEOUT}={text}: need a number of seconds such as 600") from None
    with ending_with_launcher():
        join_group(seconds)
        try:
            yield
        except (dist.DistError, RuntimeError) as error:
            if isinstance(error, Failure) or not lost(error):
                raise
            silent = f"another process has stopped, or did not answer for {text} s"
            raise Failure(f"{silent}: {first_line(error)[:160]}") from error
        finally:
            dist.destroy_process_group()


def join_group(timeout: timedelta) -> None:
    """Join the process group; raise if a process is missing after the timeout."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        try:  # at once, not after the timeout
            socket.create_connection((host, port)).close()
        except ConnectionRefusedError:
            raise Failure(f"the launcher at {host}:{port} has ended: start it again") from None
        except OSError:  # the rendezvous says more
            pass
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
        if os.environ.get("GROUP_WORLD_SIZE") == "1":  # torchrun on one machine keeps its store between restarts
            store = dist.PrefixStore(f"attempt-{restarts()}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except (dist.DistError, RuntimeError, ValueError) as error:
        raise Failure(no_group(error)) from error


@contextmanager
def ending_with_launcher() -> Iterator[None]:
    """Send SIGTERM to this process if its launcher dies inside the block.

    A launcher that is killed tells its processes nothing, and nobody else would end them.
    """
    parent = STARTED[1] if STARTED[0] == os.getpid() else os.getppid()  # not that of the process it was forked from
    if os.getppid() != parent:
        raise Stopped(number=signal.SIGTERM)
    over = threading.Event()

    def look() -> None:
        while not over.wait(POLL_SECONDS):
            if os.getppid() != parent:
                return os.kill(os.getpid(), signal.SIGTERM)

    watch = threading.Thread(target=look, daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def no_group(error: Exception) -> str:
    """Explain in one line why the processes did not find each other."""
    text, address = str(error), f"{os.environ.get('MASTER_ADDR', '?')}:{os.environ.get('MASTER_PORT', '?')}"
    if "EADDRINUSE" in text or "in use" in text:
        return f"{address} is in use: choose another port with torchrun --master-port, or MASTER_PORT"
    if isinstance(error, ValueError):
        return f"the launcher's environment is incomplete: {first_line(error)}"
    missing = f"not all {launched_ranks()} processes came to {address} in time"
    return f"{missing}: start the missing ones, or give them more with {TIMEOUT}=1200 ({first_line(error)[:160]})"


def lost(error: Exception) -> bool:
    """Return whether an error is of a collective whose other processes are gone or silent."""
    words = ("Connection closed", "Connection reset", "Timed out", "timeout", "Broken pipe", "Socket", "gloo")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def agree(facts: dict[str, Any], error: Exception | None = None) -> None:
    """Compare facts across ranks; raise on all of them if they differ or one has an error."""
    if not in_process_group():
        return
    Agreements.count += 1
    own_facts = {"error": None if error is None else [isinstance(error, Misuse), " ".join(str(error).split())], **facts}
    all_facts = [json.loads(text) for text in exchange_texts(json.dumps(own_facts))]
    if error is not None:
        return  # the caller raises it
    for rank, other in enumerate(all_facts):
        if other["error"] is not None:
            raise (Misuse if other["error"][0] else Failure)(f"rank {rank}: {other['error'][1]}")
    for rank, other in enumerate(all_facts):
        for name in facts:
            if other[name] != all_facts[0][name]:
                raise Misuse(f"{difference(name, all_facts[0][name], other[name], rank)}: give all processes the same")


def difference(name: str, first: Any, other: Any, rank: int) -> str:
    """Describe one difference between rank 0 and another rank.

    >>> difference("plan", {"seed": 0, "lr": 0.1}, {"seed": 1, "lr": 0.1}, 2)
    'rank 2 has a plan with seed=1, and rank 0 with seed=0'
    """
    fact = FACT_NAMES.get(name, name)
    keys = [key for key in first if first[key] != other.get(key)] if isinstance(first, dict) else []
    if not keys or not isinstance(other, dict):
        return f"rank {rank} has other {fact.removeprefix('a ')} ({other}) than rank 0 ({first})"
    key = keys[0]
    return f"rank {rank} has {fact} with {key}={other.get(key)}, and rank 0 with {key}={first[key]}"


def refusing_together(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate: raise an error of one rank on every rank if it occurs before `agree`."""

    @functools.wraps(function)
    def run(*args: Any, **settings: Any) -> Result:
        before = Agreements.count
        try:
            return function(*args, **settings)
        except Exception as error:
            if Agreements.count == before and not was_stopped():  # others are stopped too, and may be anywhere
                agree({}, error)
            raise

    return run


def refuse_several(model: str) -> None:
    """Refuse to fit a model that is not a network in several processes."""
    if in_process_group():
        problem = f"{model} in {dist.get_world_size()} processes, which is not a network"
        raise Misuse(f"{problem}: start one process, without torchrun")


def from_first(text: str) -> str:
    """Return the text of rank 0."""
    return exchange_texts(text)[0] if in_process_group() else text


def continues(path: str | Path | None) -> bool:
    """Return whether `torchrun` has restarted these processes after the run was started."""
    if path is None or not in_process_group():
        return False
    ranks = [json.loads(text) for text in exchange_texts(json.dumps([restarts(), (Path(path) / MANIFEST).exists()]))]
    return bool(ranks[0][1]) and any(count > 0 for count, _ in ranks)  # machines count their own restarts


def restarts() -> int:
    """Return how often `torchrun` has restarted these processes after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def require_visible(path: Path, ranks: Ranks) -> None:
    """Wait for rank 0 to create a run directory; refuse one that other processes do not see."""
    ranks.wait()
    visible = ranks.texts(str((path / MANIFEST).exists()))
    if "False" in visible:
        rank = visible.index("False")
        raise Failure(f"rank {rank} does not see {path}: give out= a directory that all processes share")
