"""Tangent kernels of any network against whole Jacobians, real steps and finite differences."""

from dataclasses import replace

import pytest
import torch
from jacobian_kernels import CASES, Crowd, case, crowd, jacobian_kernels, mean_over_outputs, plain_outputs
from kernel_matrices import Descent, average_kernels, block_matrix, gaussian, least_eigenvalue
from torch import Tensor, nn

from murmuration.core import tangent_kernels
from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.engines import assemble, engine, member_outputs
from murmuration.core.population import KEPT, Population
from murmuration.core.state import Batch, State, StepConfig
from murmuration.core.step import step
from murmuration.core.tangent_kernels import measured_gamma, smooth_gamma, trace_ratio, traceable_parameters
from murmuration.core.update import Updater
from murmuration.core.weights import POINT, Structure
from murmuration.likelihoods import Categorical
from murmuration.studies.tangent_kernels import MemberKernels, member_kernels
from murmuration.system.errors import Misuse

RELATIVE = 1e-10


def kernels(given: Crowd, x1: Tensor, x2: Tensor | None = None, **rest) -> MemberKernels:
    return member_kernels(given.module, given.population, given.family, x1, x2, **rest)


def assert_alike(found: MemberKernels, expected: MemberKernels, relative: float = RELATIVE) -> None:
    for name in ("common", "individual"):
        a, b = getattr(found, name), getattr(expected, name)
        assert a.shape == b.shape
        assert (a - b).abs().max() <= relative * b.abs().max(), name


@pytest.mark.parametrize("name", CASES)
def test_kernels_are_products_of_jacobians(name):
    given, x1, x2 = case(name)
    expected = jacobian_kernels(given, x1, x2)
    assert_alike(kernels(given, x1, x2, outputs="each"), expected)
    assert_alike(kernels(given, x1, x2), mean_over_outputs(expected, expected.common.shape[1] // len(x1)))


@pytest.mark.parametrize("name", ["rank-one", "lenet, rank-one", "attention", "odd"])
def test_little_memory_gives_the_same(name, monkeypatch):
    given, x1, x2 = case(name)
    expected = kernels(given, x1, x2, outputs="each")
    monkeypatch.setattr(tangent_kernels, "BUDGET", 1)
    assert_alike(kernels(given, x1, x2, outputs="each"), expected)


@pytest.mark.parametrize("name", ["rank-one", "lenet", "norms"])
def test_both_ways_of_kernel_products_agree(name, monkeypatch):
    """Pairs of positions, and derivatives made for some channels, whichever is cheaper."""
    given, x1, x2 = case(name)
    expected = kernels(given, x1, x2)
    for one, other in (("by_positions", "by_channels"), ("by_channels", "by_positions")):
        with monkeypatch.context() as patch:
            patch.setattr(tangent_kernels, one, getattr(tangent_kernels, other))
            assert_alike(kernels(given, x1, x2), expected)


def test_what_is_left_to_explicit_derivatives():
    """Parameters in unknown uses only: a tied kernel, an embedding, products, PReLU; attention's projections."""

    def left(name: str) -> set[str]:
        given, x1, _ = case(name)
        tensors = {**given.population.shared, **given.tensors(0)[0], **given.tensors(0)[1]}
        names = frozenset({**given.population.own, **given.population.shared})
        return set(
            names - traceable_parameters(Structure(given.module).train(False), tensors, given.family.spec, x1, names)
        )

    assert left("odd") == {"words.weight", "tied.weight", "act.weight", "table"}
    attention = {
        f"layer.self_attn.{each}" for each in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    }
    assert left("attention") == attention
    assert left("lenet, rank-one") == left("residual") == left("convolutions, rank-one") == set()
    # Sequences first: what acts before the transposition has no axis of examples in front.
    assert left("attention, sequences first") == {n for n in case("attention")[0].population.shared if n[:5] == "layer"}


@pytest.mark.parametrize("name", ["rank-one", "lenet, rank-one", "odd", "backbone"])
def test_inputs_that_meet_themselves(name):
    """Symmetry between members and inputs, and a block matrix without negative eigenvalues."""
    given, x1, x2 = case(name)
    x = torch.cat([x1, x2])
    alone, crossed = kernels(given, x), kernels(given, x2, x1)
    assert_alike(alone, kernels(given, x, x))
    assert_alike(MemberKernels(crossed.common.permute(2, 3, 0, 1), crossed.individual.mT), kernels(given, x1, x2))
    for gamma in (1.0, 2.0):
        for outputs in ("mean", "each", [1]):
            whole = block_matrix(kernels(given, x, outputs=outputs), Descent(1, gamma, own_rate=0.3))
            assert torch.allclose(whole, whole.mT, rtol=1e-12, atol=1e-12)
            assert least_eigenvalue(whole) >= -1e-10


def test_members_with_nothing_in_common_and_with_everything():
    own, x1, x2 = case("own")
    assert kernels(own, x1, x2).common.abs().max() == 0
    everything, x1, x2 = case("everything")
    assert kernels(everything, x1, x2).individual.abs().max() == 0
    frozen = kernels(everything, x1, x2, trained=lambda name: False)
    assert frozen.common.abs().max() == 0


def test_only_what_is_trained_counts():
    """Kernels of two halves of the parameters add up to the whole."""
    given, x1, x2 = case("rank-one")
    parts = [
        kernels(given, x1, x2, trained=lambda name, end=end: name.endswith(end)) for end in (":in", ":out", "weight")
    ]
    parts.append(kernels(given, x1, x2, trained=lambda name: name.endswith("bias")))
    whole = kernels(given, x1, x2)
    assert_alike(MemberKernels(sum(p.common for p in parts), sum(p.individual for p in parts)), whole)
    assert parts[0].common.abs().max() == 0
    assert parts[2].individual.abs().max() == 0


def test_one_output_alone():
    given, x1, x2 = case("rank-one")
    each = kernels(given, x1, x2, outputs="each")
    alone = kernels(given, x1, x2, outputs=[2])
    assert_alike(alone, MemberKernels(each.common[:, 2::3][..., 2::3], each.individual[:, 2::3, 2::3]))


def test_a_kernel_by_finite_differences():
    """<df_a(x)/dw, df_b(x')/dw> by central differences of plain networks, every shared number in turn."""
    given, x1, x2 = case("rank-one")
    moved = 1e-5

    def slope(member: int, x: Tensor, name: str, index: int) -> Tensor:
        values = []
        for sign in (1, -1):
            tensors = {name: t.clone() for name, t in {**given.population.shared, **given.tensors(member)[0]}.items()}
            tensors[name].view(-1)[index] += sign * moved
            values.append(plain_outputs(given, tensors, x)[0, 1])
        return (values[0] - values[1]) / (2 * moved)

    total = sum(
        slope(0, x1[:1], name, index) * slope(1, x2[:1], name, index)
        for name, tensor in given.population.shared.items()
        for index in range(tensor.numel())
    )
    assert kernels(given, x1[:1], x2[:1], outputs=[1]).common[0, 0, 1, 0].item() == pytest.approx(
        float(total), rel=1e-8
    )


def one_step(given: Crowd, x: Tensor, y: Tensor, lr: float, gamma: float) -> Population:
    """The population after one real step."""
    optimizer, population = make_optimizer("sgd", momentum=0.0), given.population.clone()
    active = torch.ones(population.members, dtype=torch.bool)
    state = State(population, optimizer.init(population.own), optimizer.init(population.shared), active)
    batch = Batch(lambda g: (x.expand(g.stop - g.start, *x.shape), y.expand(g.stop - g.start, *y.shape)), lr)
    with assemble(engine("loop"), given.module) as team:
        step(team, StepConfig(Categorical(3), given.family, None, Updater(optimizer), gamma=gamma), state, batch)
    return population


def outputs_of(given: Crowd, population: Population, x: Tensor) -> Tensor:
    with assemble(engine("loop"), given.module) as team:
        return member_outputs(team, given.family, population, x)


@pytest.mark.parametrize("name", ["rank-one", "rank-one-uv", "backbone", "everything"])
@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_a_step_moves_outputs_as_the_kernels_say(name, gamma):
    """f changes by -eta / B Theta dloss/df; what is left falls with the square of eta."""
    given, x, other = case(name, members=3)
    y = torch.tensor([0, 2, 1])
    before = outputs_of(given, given.population, x).requires_grad_()  # (M, B, K)
    loss = Categorical(3).loss(before, y.expand(3, 3)).mean(-1).sum()
    slopes = torch.autograd.grad(loss, before)[0].flatten()
    theta = block_matrix(kernels(given, other, x, outputs="each"), Descent(1, gamma))
    start, left = outputs_of(given, given.population, other), []
    for lr in (1e-3, 5e-4):
        change = outputs_of(given, one_step(given, x, y, lr, gamma), other) - start
        expected = -lr * (theta @ slopes).reshape(change.shape)
        left.append((change - expected).norm() / expected.norm())
    assert left[0] < 0.01
    assert left[0] / left[1] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("name", ["own", "rank-one", "lenet, rank-one", "norms"])
def test_pruned_weights_are_no_parameters(name):
    """Derivatives by weights that a mask holds at zero do not count."""
    given, x1, x2 = case(name)
    kernel = next(each for each in {**given.population.own, **given.population.shared} if each.endswith("weight"))
    mask = gaussian(*rows_of(given.population, kernel).shape[1:], seed=7) > 0
    masks = mask.expand(given.population.members, *mask.shape).clone()
    buffers = {**given.population.buffers, kernel + KEPT: masks}
    population = replace(given.population, buffers=buffers)
    for named in (population.own, population.shared):
        if kernel in named:
            named[kernel] *= mask
    whole = jacobian_kernels(given, x1, x2)  # with the weights at zero, and derivatives by all of them
    by_pruned = pruned_products(given, kernel, mask, x1, x2)
    expected = MemberKernels(whole.common - by_pruned.common, whole.individual - by_pruned.individual)
    assert_alike(kernels(replace(given, population=population), x1, x2, outputs="each"), expected)


def rows_of(population: Population, name: str) -> Tensor:
    return population.own[name] if name in population.own else population.shared[name][None]


def pruned_products(given: Crowd, kernel: str, mask: Tensor, x1: Tensor, x2: Tensor) -> MemberKernels:
    """Kernels by the pruned entries of one parameter alone, from whole Jacobians."""
    members = range(given.population.members)

    def rows(member: int, x: Tensor) -> Tensor:  # (n K, P)
        own, buffers = given.tensors(member)
        tensors = {**own, **given.population.shared, **buffers}
        leaf = tensors[kernel].detach().clone().requires_grad_()
        outputs = [plain_outputs(given, {**tensors, kernel: leaf}, each[None])[0] for each in x]
        found = [torch.autograd.grad(output, leaf, retain_graph=True)[0] for row in outputs for output in row]
        return torch.stack([(each * ~mask).flatten() for each in found])

    ones, twos = ([rows(member, x) for member in members] for x in (x1, x2))
    common = torch.stack([torch.stack([a @ b.mT for b in twos], 1) for a in ones])
    individual = torch.stack([a @ b.mT for a, b in zip(ones, twos, strict=True)])
    none = (torch.zeros_like(common), torch.zeros_like(individual))
    return MemberKernels(none[0], individual) if kernel in given.population.own else MemberKernels(common, none[1])


@pytest.mark.parametrize("name", ["rank-one", "lenet, rank-one", "odd", "backbone", "own"])
def test_the_gamma_of_training_is_that_of_the_kernels(name):
    given, x, _ = case(name)
    within, between, _ = average_kernels(kernels(given, x))
    members = given.population.members
    expected = min(max(smooth_gamma(members, trace_ratio(within, between)), 1.0), float(members))
    assert measured_gamma(given.module, given.population, given.family, x) == expected


def test_nothing_is_changed_or_left_behind():
    given, x1, x2 = case("norms")
    before = given.population.clone()
    given.module.train()
    kernels(given, x1, x2)
    assert given.module.training
    for name, tensor in given.population.to_tensors().items():
        assert torch.equal(tensor, before.to_tensors()[name])
        assert not tensor.requires_grad
        assert tensor.grad is None


def test_requests_that_cannot_be_met():
    given, x1, x2 = case("rank-one")
    with pytest.raises(Misuse, match=r"shapes \(3, 4\) and \(2, 3\): examples of both sets need one shape"):
        kernels(given, x1, x2[:, :3])
    with pytest.raises(Misuse, match="no inputs: give at least one in each set"):
        kernels(given, x1, x2[:0])
    with pytest.raises(Misuse, match="unknown outputs 'eahc': did you mean 'each'"):
        kernels(given, x1, outputs="eahc")
    with pytest.raises(
        Misuse, match=r"outputs=\[3\]: the network has 3 outputs; write 'mean', 'each' or a list of 0 to 2"
    ):
        kernels(given, x1, outputs=[3])
    loose = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1))
    with pytest.raises(Misuse, match="without running statistics mixes examples"):
        kernels(replace(crowd(lambda: loose, x1), family=POINT), x1)
