from dataclasses import replace
from functools import partial

import pytest
import torch

import murmuration as mm
from murmuration.core.dynamics import StepTime, TrainTime
from murmuration.core.dynamics.optimizer import TorchOptimizer, make_optimizer
from murmuration.system.errors import Misuse

PARITY = {
    "adam": ({"name": "adam"}, lambda p: torch.optim.Adam(p, lr=0.05)),
    "adam, weight decay": (
        {"name": "adam", "weight_decay": 0.1},
        lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
    ),
    "adam, decoupled decay": (
        {"name": "adam", "weight_decay": 0.1, "decay": "decoupled"},
        lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    ),
    "adamw": ({"name": "adamw"}, lambda p: torch.optim.AdamW(p, lr=0.05)),
    "adamw, weight decay": (
        {"name": "adamw", "weight_decay": 0.3},
        lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.3),
    ),
    "sgd": ({"name": "sgd", "momentum": 0.9}, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "sgd, weight decay": (
        {"name": "sgd", "momentum": 0.5, "weight_decay": 0.1},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5, weight_decay=0.1),
    ),
    "nesterov": (
        {"name": "nesterov", "momentum": 0.9},
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    ),
}


def at(lr: float, updates: int) -> StepTime:
    return StepTime(lr, updates, TrainTime(updates, 100, 1), lambda likes: [])


def walk(options: dict, target: torch.Tensor, steps: int = 12) -> torch.Tensor:
    """Descend sum((w - target)^4) from zero with our update on a list of tensors."""
    optimizer = make_optimizer(**options)
    weight = torch.zeros_like(target)
    moments = optimizer.init({"w": weight})
    for taken in range(steps):
        gradient = 4 * (weight - target) ** 3
        optimizer.update([weight], [gradient], [list(m.values()) for m in moments.values()], at(0.05, taken))
    return weight


@pytest.mark.parametrize("case", PARITY)
def test_updates_equal_those_of_torch_optim(case):
    options, reference = PARITY[case]
    target = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    weight = torch.nn.Parameter(torch.zeros_like(target))
    optimizer = reference([weight])
    for _ in range(12):
        optimizer.zero_grad()
        ((weight - target) ** 4).sum().backward()
        optimizer.step()
    # The fused kernel orders a few products differently: a handful of roundings in 12 steps.
    torch.testing.assert_close(walk(options, target), weight.detach(), rtol=2e-5, atol=2e-6)


def test_decoupled_decay_of_sgd_shrinks_the_weight_itself():
    optimizer = make_optimizer("sgd", momentum=0.0, weight_decay=0.5, decay="decoupled")
    weight = torch.tensor([2.0])
    optimizer.update([weight], [torch.tensor([1.0])], [[torch.zeros(1)]], at(0.1, 0))
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1)


def test_nesterov_by_hand():
    """velocity = 0.9 velocity + g, then theta - lr (g + 0.9 velocity): 1 - 0.1 1.9, then 0.81 - 0.1 (1 + 0.9 1.9)."""
    optimizer = make_optimizer("nesterov", momentum=0.9)
    weight, velocity, path = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), []
    for taken in range(2):
        optimizer.update([weight], [torch.ones_like(weight)], [[velocity]], at(0.1, taken))
        path.append(weight.item())
    assert path == pytest.approx([0.81, 0.539], rel=1e-12)


def test_coupled_decay_goes_through_the_velocity():
    """Without any gradient of the loss, the first step of Nesterov is theta (1 - lr wd 1.9)."""
    optimizer = make_optimizer("nesterov", momentum=0.9, weight_decay=0.5, decay="coupled")
    weight = torch.full((1,), 2.0, dtype=torch.float64)
    optimizer.update([weight], [torch.zeros_like(weight)], [[torch.zeros_like(weight)]], at(0.1, 0))
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5 * 1.9), rel=1e-12)


def test_a_gradient_in_another_memory_layout_moves_the_right_elements():
    optimizer = make_optimizer("adam")
    weight, gradient = torch.zeros(3, 4), torch.zeros(4, 3).t()
    gradient[2, 1] = 1.0
    optimizer.update([weight], [gradient], [[torch.zeros(3, 4)], [torch.zeros(3, 4)]], at(0.1, 0))
    assert weight.nonzero().tolist() == [[2, 1]]


def test_a_shared_parameter_in_channels_last_memory_moves_by_its_own_gradient():
    """The fused kernels walk through memory: gradients must be laid out like their parameters."""
    weight = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)
    gradient = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    for name, kinds in (("adam", 2), ("sgd", 1)):
        moved, plain = weight.clone(), torch.zeros(2, 3, 4, 4)
        for tensor in (moved, plain):
            state = [[torch.zeros_like(tensor)] for _ in range(kinds)]
            make_optimizer(name).update([tensor], [gradient], state, at(0.1, 0))
        assert torch.equal(moved, plain)


FACTORIES = {
    "rmsprop": partial(torch.optim.RMSprop, alpha=0.9),
    "adamw": partial(torch.optim.AdamW, weight_decay=0.1),
    "rprop": torch.optim.Rprop,  # begins with a state that is not zero
    "sgd": partial(torch.optim.SGD, momentum=0.9),  # has no state before its first step
}


@pytest.mark.parametrize("name", FACTORIES)
def test_an_optimizer_of_one_s_own_moves_each_member_as_it_would_alone(name):
    start = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    rule, memory, own = TorchOptimizer(FACTORIES[name]), {}, start.clone()
    references = [torch.nn.Parameter(row.clone()) for row in start]
    optimizers = [FACTORIES[name]([reference], lr=0.05) for reference in references]
    for _ in range(8):
        for member in range(2):
            rule.update_member(member, {"w": own[member]}, [4 * own[member] ** 3], [0.05], memory)
            references[member].grad = 4 * references[member].detach() ** 3
            optimizers[member].step()
    torch.testing.assert_close(own, torch.stack([r.detach() for r in references]), rtol=0, atol=0)


@pytest.mark.slow
def test_an_optimizer_of_one_s_own_trains_and_resumes(tmp_path, moons, monkeypatch):
    plan = mm.Plan(members=2, epochs=3, optimizer=FACTORIES["rmsprop"], lr=3e-3)
    whole = mm.fit("mlp", moons, plan=plan, out=tmp_path / "whole", posthoc=None)
    assert whole.engine.name == "threads"

    class KilledError(Exception):
        pass

    def stop(message, done, total, record):
        if record is not None and record["epoch"] == 2:
            raise KilledError

    with pytest.raises(KilledError):
        mm.fit("mlp", moons, plan=plan, out=tmp_path / "killed", progress=stop, checkpoint_seconds=0, posthoc=None)
    with pytest.raises(Misuse, match="an optimizer of your own: give it again as optimizer="):
        mm.resume(tmp_path / "killed", data=moons)
    resumed = mm.resume(tmp_path / "killed", data=moons, optimizer=FACTORIES["rmsprop"])
    for name, tensor in whole.groups[0].population.own.items():
        assert torch.equal(tensor, resumed.groups[0].population.own[name])


def test_an_optimizer_of_one_s_own_is_refused_where_members_are_stacked(moons):
    plan = mm.Plan(members=2, epochs=1, optimizer=torch.optim.SGD, engine="stacked")
    with pytest.raises(Misuse, match="engine=stacked with an optimizer of your own"):
        mm.fit("mlp", moons, plan=plan, posthoc=None)
    with pytest.raises(Misuse, match="give them to the optimizer itself"):
        mm.Plan(optimizer=torch.optim.SGD, weight_decay=0.1, decay="coupled")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "adma"}, "unknown optimizer 'adma': did you mean 'adam'"),
        ({"name": "sgd", "weight_decay": 0.1, "decay": "l2"}, "unknown decay 'l2'"),
        ({"name": "adamw", "decay": "coupled"}, "decay of adamw is decoupled; write optimizer='adam'"),
    ],
)
def test_bad_requests_say_what_to_write(options, message):
    with pytest.raises(Misuse, match=message):
        make_optimizer(**options)


def test_an_optimizer_that_the_dynamics_would_replace_is_refused(moons):
    """IVON moves every weight of a network without other tensors; a rule of one's own takes an optimizer's place."""
    for optimizer in ("sgd", torch.optim.RMSprop):
        with pytest.raises(Misuse, match="an optimizer with dynamics ivon, which moves weights by a rule of its own"):
            mm.fit(
                "mlp", moons, recipe="ivon", epochs=1, plan=mm.Plan(optimizer=optimizer, engine="loop"), posthoc=None
            )
    with pytest.raises(Misuse, match="optimizer is a SGD made for other parameters: give the class"):
        mm.Plan(optimizer=torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))


def test_an_optimizer_moves_the_deterministic_tensors_of_ivon(digits, normalised_net):
    """Batch-norm scales and shifts have no distribution: a named optimizer moves them, one of one's own is refused."""
    plan = mm.Plan(epochs=1, batch_size=128, engine="loop", optimizer="sgd")
    assert mm.fit(normalised_net, digits, recipe="ivon", plan=plan, posthoc=None).members == 1
    with pytest.raises(Misuse, match="an optimizer with dynamics ivon"):
        mm.fit(normalised_net, digits, recipe="ivon", plan=replace(plan, optimizer=torch.optim.SGD), posthoc=None)
