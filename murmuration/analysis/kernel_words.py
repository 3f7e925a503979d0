"""What a diagnosis of tangent kernels means, in sentences."""

import math
from typing import TYPE_CHECKING

from murmuration.analysis.regimes import relative_mean, spike_threshold
from murmuration.weights.laws import law_named

if TYPE_CHECKING:
    from murmuration.analysis.kernels import KernelDiagnosis

CROWDED = 0.25  # M / N from which the slowest combination of members learns at a quarter of the usual pace, or less
NEAR = 1.5  # a gamma within this factor of the one that fits does

VERDICTS = {
    "independent": "independent: what one member learns hardly moves the others; each trains as if it were alone",
    "between": "between independent and collective: together the others move a member {pull:.2g} times as far as it "
    "moves itself",
    "collective": "collective: members pull each other along; together the others move a member {pull:.2g} times as "
    "far as it moves itself",
    "degenerate": "degenerate: all members are one function; on the same batches they stay one, on batches of their "
    "own nothing but chance tells them apart",
}
AGAINST = "between: members work against each other; together the others undo {undone:.2g} of what a member does"
BY_CONSTRUCTION = "independent by construction: members share nothing that is trained, so T_o = 0"


def verdict_on(found: "KernelDiagnosis") -> str:
    """The regime in a sentence."""
    if not found.shares:
        return BY_CONSTRUCTION
    name, pull = found.regime.name, found.regime.pull
    return AGAINST.format(undone=-pull) if name == "between" and pull < 0 else VERDICTS[name].format(pull=pull)


def advice_on(found: "KernelDiagnosis") -> tuple[str, ...]:
    """What to do, most important first."""
    if not found.shares:
        return ("gamma does not matter: there is no shared step to scale",)
    if found.regime.name == "degenerate":
        return (remedy(found),)
    said = [*tied(found), rate(found)]
    if found.optimiser == "adam":
        said.append(
            "with adam gamma has next to no effect, since it divides gradients by their size; with sgd it sets the "
            "pace of what is shared"
        )
    return (*said, *crowd(found))


def remedy(found: "KernelDiagnosis") -> str:
    """How members become different."""
    if found.recipe.shares.rank_one:
        return (
            f"choose factors that differ: init={found.recipe.shares.init} leaves all members the same; write "
            "sharing rank-one:init=rademacher,gamma=M (independent) or rank-one:init=normal_1_0.5 (collective)"
        )
    return (
        f"sharing {found.recipe.sharing} leaves members nothing that tells them apart: write sharing rank-one, or own"
    )


def tied(found: "KernelDiagnosis") -> list[str]:
    """A word on members that factors of mean zero would set free, were it not for a shared bias of the outputs."""
    sharing = found.recipe.shares
    if (
        not sharing.rank_one
        or sharing.bias not in ("shared", "inside")
        or found.regime.name == "independent"
        or not found.width
    ):
        return []
    if relative_mean(law_named(sharing.init)) > spike_threshold(found.members, found.width):
        return []
    return [f"init={sharing.init} would make members independent, but the bias they share ties them: write bias=own"]


def rate(found: "KernelDiagnosis") -> str:
    """Which gamma fits, and whether the recipe has it."""
    members, smooth, given = found.members, found.regime.gamma, found.recipe.shares.gamma
    value = found.recipe.shares.gamma_of(members=members, smooth=smooth)
    if found.regime.name == "independent":
        if value * NEAR >= members:
            return f"gamma={given} is right: a member has the pace of a network alone"
        return f"use gamma=M: with gamma={given} what is shared learns {members / value:.2g} times slower than alone"
    if not math.isfinite(smooth):
        return "no gamma makes up for it: members' steps cancel"
    if value / NEAR <= smooth <= value * NEAR:
        return f"gamma={given} is right"
    if value > smooth:
        return f"use gamma=1: with gamma={given} members' steps add up to {value / smooth:.2g} times a lone network's"
    if found.regime.name == "collective":
        return f"gamma={given} is right, on the slow side: gamma={smooth:.2g} would have the pace of a network alone"
    return f"use gamma={smooth:.2g}: with gamma={given} what is shared learns {smooth / value:.2g} times slower"


def crowd(found: "KernelDiagnosis") -> list[str]:
    """A word on too many members for one layer, where there are."""
    if found.regime.name == "collective" or not found.capacity >= CROWDED or math.isnan(found.slowest):
        return []
    where = f"{found.members} members in {found.width} channels (what {found.layer} takes)"
    if found.slowest == 0:
        return [f"{where}: some combination of members cannot learn at all; widen the network or take fewer members"]
    return [f"{where}: some combination of members learns at {found.slowest:.2g} of the usual pace; a wider net helps"]
