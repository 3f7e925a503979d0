"""Kill a training process with SIGKILL at random moments, again and again, and let it go on each time.

    python tests/kill_and_resume.py DIRECTORY KILLS

Children are forked from a process that has already imported everything, so that most of their life is training. Kills
come within half the time that the undisturbed run takes on this machine. Prints how many runs ended and whether all
ended with the same bits.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import murmuration as mm

PLAN = mm.Plan(members=2, epochs=6, batch_size=64, engine="loop", lr=3e-3, patience=50)


def live(path: Path) -> None:
    """One life of the training process: begin the run or go on with it."""
    if (path / "run.json").exists():
        mm.resume(path, checkpoint_seconds=0)
    else:
        mm.fit("small-cnn", "digits", plan=PLAN, out=path, checkpoint_seconds=0, posthoc=None)


def fork(path: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            live(path)
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def ended(child: int, options: int = 0) -> bool:
    """Whether the child has ended; waits for it unless `options` is WNOHANG."""
    done, status = os.waitpid(child, options)
    if status:
        raise SystemExit("a training process failed")
    return bool(done)


def ended_or_killed(child: int, seconds: float) -> bool:
    """Whether the child ended by itself within the time; otherwise it is killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ended(child, os.WNOHANG):
            return True
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def main(directory: Path, kills: int) -> None:
    torch.set_num_threads(1)
    rng, start = random.Random(0), time.monotonic()
    live(directory / "undisturbed")
    longest = 0.5 * (time.monotonic() - start)
    runs, killed = [directory / "run-0"], 0
    while killed < kills:
        if ended_or_killed(fork(runs[-1]), rng.uniform(0.0, longest)):
            runs.append(directory / f"run-{len(runs)}")
        else:
            killed += 1
    for path in runs:
        ended(fork(path))
    reference = (directory / "undisturbed" / "members.safetensors").read_bytes()
    equal = [(path / "members.safetensors").read_bytes() == reference for path in runs]
    left = [str(file) for file in directory.rglob("*.partial")]
    print(json.dumps({"kills": killed, "runs": len(runs), "equal": all(equal), "left_behind": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
