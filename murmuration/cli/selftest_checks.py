"""Known answers: what must come out on every machine, found out in seconds."""

import math
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import murmuration as mm
from murmuration.prediction.ensemble import Ensemble
from murmuration.runs.checkpoints import load_checkpoint
from murmuration.system.errors import Failure

BOUND = 1e-4  # on the logits of two-moons after an epoch: rounding apart, stacked and looped members are the same
KILLED_AT = 9
scratch = partial(tempfile.TemporaryDirectory, prefix="murmur-selftest-")


def require(holds: bool, message: str) -> None:
    """Fail with a message unless the condition holds."""
    if not holds:
        raise Failure(message)


def close(name: str, got: float, expected: float) -> None:
    require(abs(got - expected) <= 1e-9, f"{name} is {got!r}, expected {expected!r}")


def scores_by_hand() -> str:
    """Three examples, one wrong: -log of 0.7, 0.6 and 0.1; squared distances 0.18, 0.32 and 1.62."""
    scores = mm.score(mm.Predictive.from_probs([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]]), [0, 1, 1])
    close("accuracy", float(scores["accuracy"]), 2 / 3)
    close("nll", float(scores["nll"]), -(math.log(0.7) + math.log(0.6) + math.log(0.1)) / 3)
    close("brier", float(scores["brier"]), 2.12 / 3)
    return "accuracy 2/3, nll 1.057, brier 0.707"


def uncertainty_by_hand() -> str:
    """Two members that are confident of opposite classes: the uncertainty beyond their own is epistemic."""
    two = mm.Predictive.from_probs([[[0.9, 0.1]], [[0.1, 0.9]]])
    own = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    close("entropy", two.entropy.item(), math.log(2))
    close("expected entropy", two.expected_entropy.item(), own)
    close("mutual information", two.mutual_information.item(), math.log(2) - own)
    return "log 2 = 0.325 aleatoric + 0.368 epistemic"


def variance_by_hand() -> str:
    """Means 0 and 2 with noise 0.5: epistemic variance 1, aleatoric 0.25, and the median halfway."""
    two = mm.Predictive.from_moments([[[0.0]], [[2.0]]], 0.5)
    close("epistemic variance", two.epistemic_var.item(), 1.0)
    close("aleatoric variance", two.aleatoric_var.item(), 0.25)
    close("median", two.quantile(0.5).item(), 1.0)
    return "1.25 = 0.25 aleatoric + 1 epistemic"


def trained(**settings: Any) -> Ensemble:
    """Train a small ensemble on two-moons for one epoch."""
    return mm.fit("mlp", "two-moons", plan=mm.Plan(**{"members": 3, "epochs": 1, "engine": "loop", **settings}))


def outputs(ensemble: Ensemble) -> Tensor:
    return ensemble.predict(mm.open_data("two-moons").test).outputs


def same_bits(a: Tensor, b: Tensor, names: str) -> str:
    require(a.shape == b.shape and torch.equal(a, b), f"{names} differ by up to {float((a - b).abs().max()):.1e}")
    return f"{names} are equal, bit for bit"


def one_is_single() -> str:
    """An ensemble of one member is the single network."""
    single = mm.fit("mlp", "two-moons", recipe="single", plan=mm.Plan(epochs=1))
    return same_bits(outputs(trained(members=1)), outputs(single), "one member and a single network")


def stacked_is_looped() -> str:
    """Members computed together are those computed one by one."""
    apart = float((outputs(trained(engine="stacked")) - outputs(trained(engine="loop"))).abs().max())
    require(apart <= BOUND, f"logits differ by {apart:.1e}, more than {BOUND:.0e}")
    return f"logits agree to {apart:.1e} after an epoch"


def saved_is_loaded() -> str:
    """Members that were saved and loaded predict the same."""
    with scratch() as folder:
        ensemble = trained()
        ensemble.save(f"{folder}/run")
        return same_bits(outputs(ensemble), outputs(mm.load(f"{folder}/run")), "saved and loaded members")


class Killed(Exception):  # noqa: N818
    """What stands for a killed process."""


def resumed_is_undisturbed() -> str:
    """A run that is killed and continued leaves the members of one that is not."""

    def kill(text: str, done: int, total: int, record: Any) -> None:
        if done >= KILLED_AT:
            raise Killed

    plan = mm.Plan(members=3, epochs=1, engine="loop")
    with scratch() as folder:
        with suppress(Killed):
            mm.fit("mlp", "two-moons", plan=plan, out=f"{folder}/run", progress=kill, checkpoint_seconds=0)
        stood = load_checkpoint(Path(folder, "run"))
        require(stood is not None and 0 < stood.state.step <= KILLED_AT, "the killed run left no checkpoint")
        return same_bits(outputs(mm.resume(f"{folder}/run")), outputs(trained()), "resumed and undisturbed members")


def report_is_sound() -> str:
    """A report on a small ensemble is complete and its policy forbids requests."""
    with scratch() as folder:
        mm.report(trained(), mm.open_data("two-moons"), f"{folder}/report.html")
        page = Path(folder, "report.html").read_text(encoding="utf-8")
    require(page.endswith("</html>\n") and "default-src 'none'" in page, "report.html is cut short or has no policy")
    return "one file, nothing fetched"


CHECKS: dict[str, Callable[[], str]] = {
    "scores by hand": scores_by_hand,
    "uncertainty by hand": uncertainty_by_hand,
    "variance by hand": variance_by_hand,
    "one member is a single network": one_is_single,
    "stacked members are looped members": stacked_is_looped,
    "save and load": saved_is_loaded,
    "kill and resume": resumed_is_undisturbed,
    "report": report_is_sound,
}
