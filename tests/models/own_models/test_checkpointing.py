"""Activation checkpointing: exact where members are differentiated one by one, refused elsewhere."""

import pytest
import torch
from networks import NETWORKS, data_for
from torch import Tensor, nn

import murmuration as mm
from murmuration.system.errors import Misuse

SETTINGS = {"members": 2, "epochs": 1, "engine": "loop", "posthoc": None, "batch_size": 16}


def outputs(build, recipe: str) -> Tensor:
    data = data_for("table")
    return mm.fit(build, data, recipe=recipe, **SETTINGS).predict(data.test.x).outputs


def test_a_deep_ensemble_is_that_of_the_same_network_without_checkpointing():
    net = NETWORKS["checkpointed"]
    assert net.twin is not None
    assert torch.equal(outputs(net.build, "deep-ensemble"), outputs(net.twin, "deep-ensemble"))


@pytest.mark.parametrize("recipe", ["function-rde", "forde", "batch-ensemble", "mask-ensemble"])
def test_recipes_that_a_second_pass_would_miss_refuse_it(recipe):
    with pytest.raises(Misuse, match="activation checkpointing off"):
        outputs(NETWORKS["checkpointed"].build, recipe)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return 3 * grad * ctx.saved_tensors[0] ** 2


class OwnBackward(nn.Module):
    """A backward formula of its own: operators run there, but no layer does."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(Cubed.apply(torch.tanh(self.stem(x))))


def test_a_backward_formula_of_ones_own_is_no_checkpointing():
    assert outputs(OwnBackward, "function-rde").isfinite().all()
