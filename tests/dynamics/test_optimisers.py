import pytest
import torch

from murmuration.dynamics import make_optimiser
from murmuration.errors import Misuse

PARITY = {
    "adam": ({"name": "adam"}, lambda p: torch.optim.Adam(p, lr=0.05)),
    "adam, coupled decay": (
        {"name": "adam", "weight_decay": 0.1, "decay": "coupled"},
        lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
    ),
    "adam, decoupled decay": (
        {"name": "adam", "weight_decay": 0.1, "decay": "decoupled"},
        lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    ),
    "sgd": ({"name": "sgd", "momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "sgd, coupled decay": (
        {"name": "sgd", "momentum": 0.5, "weight_decay": 0.1, "decay": "coupled"},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5, weight_decay=0.1),
    ),
    "nesterov": (
        {"name": "nesterov", "momentum": 0.9},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    ),
}


def walk(options: dict, target: torch.Tensor, steps: int = 12) -> torch.Tensor:
    """Descend sum((w - target)^4) from zero with our update on a list of tensors."""
    optimiser = make_optimiser(**options)
    weight = torch.zeros_like(target)
    moments = optimiser.moments({"w": weight})
    for taken in range(steps):
        gradient = 4 * (weight - target) ** 3
        optimiser.update([weight], [gradient], [list(m.values()) for m in moments.values()], 0.05, taken)
    return weight


@pytest.mark.parametrize("case", PARITY)
def test_updates_equal_those_of_torch_optim(case):
    options, reference = PARITY[case]
    target = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    weight = torch.nn.Parameter(torch.zeros_like(target))
    optimiser = reference([weight])
    for _ in range(12):
        optimiser.zero_grad()
        ((weight - target) ** 4).sum().backward()
        optimiser.step()
    # The fused kernel orders a few products differently: a handful of roundings in 12 steps.
    torch.testing.assert_close(walk(options, target), weight.detach(), rtol=2e-5, atol=2e-6)


def test_decoupled_decay_of_sgd_shrinks_the_weight_itself():
    optimiser = make_optimiser("sgd", momentum=0.0, weight_decay=0.5, decay="decoupled")
    weight = torch.tensor([2.0])
    optimiser.update([weight], [torch.tensor([1.0])], [[torch.zeros(1)]], 0.1, 0)
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1)


def test_nesterov_by_hand():
    """velocity = 0.9 velocity + g, then theta - lr (g + 0.9 velocity): 1 - 0.1 1.9, then 0.81 - 0.1 (1 + 0.9 1.9)."""
    optimiser = make_optimiser("nesterov", momentum=0.9)
    weight, velocity, path = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), []
    for taken in range(2):
        optimiser.update([weight], [torch.ones_like(weight)], [[velocity]], 0.1, taken)
        path.append(weight.item())
    assert path == pytest.approx([0.81, 0.539], rel=1e-12)


def test_coupled_decay_goes_through_the_velocity():
    """Without any gradient of the loss, the first step of Nesterov is theta (1 - lr wd 1.9)."""
    optimiser = make_optimiser("nesterov", momentum=0.9, weight_decay=0.5, decay="coupled")
    weight = torch.full((1,), 2.0, dtype=torch.float64)
    optimiser.update([weight], [torch.zeros_like(weight)], [[torch.zeros_like(weight)]], 0.1, 0)
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5 * 1.9), rel=1e-12)


def test_a_gradient_in_another_memory_layout_moves_the_right_elements():
    optimiser = make_optimiser("adam")
    weight, gradient = torch.zeros(3, 4), torch.zeros(4, 3).t()
    gradient[2, 1] = 1.0
    optimiser.update([weight], [gradient], [[torch.zeros(3, 4)], [torch.zeros(3, 4)]], 0.1, 0)
    assert weight.nonzero().tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "adma"}, "unknown optimiser 'adma': did you mean 'adam'"),
        ({"name": "sgd", "weight_decay": 0.1}, "weight_decay=0.1 without decay"),
    ],
)
def test_bad_requests_say_what_to_write(options, message):
    with pytest.raises(Misuse, match=message):
        make_optimiser(**options)
