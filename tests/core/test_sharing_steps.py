"""Steps of members that share: the rule for shared tensors, multipliers of factors, repulsion, against plain loops."""

from dataclasses import replace

import pytest
import torch
from naive_repulsion import Naive
from small_runs import BATCH, CLASSES, ENGINES, EVERY, INPUTS, MEMBERS, build, coupling_of, data
from torch import Tensor, nn
from torch.func import functional_call

from murmuration.core.dynamics.optimizer import make_optimizer
from murmuration.core.engines import Engine, assemble
from murmuration.core.gradients import local_pass, pull_back
from murmuration.core.population import Named, Population, populate
from murmuration.core.sharing import SHARING, Sharing
from murmuration.core.state import Batch, Probe, State, StepConfig
from murmuration.core.step import step
from murmuration.core.update import Updater
from murmuration.core.weights import WEIGHTS, KernelTrace, Masks, Point, trace_kernels
from murmuration.likelihoods import Categorical
from murmuration.system.option_text import parse

STEPS, RATE = 4, 0.1
ALONE = [ENGINES["loop"], ENGINES["stacked"], ENGINES["stacked, direct"]]


def beginning(
    text: str, *, weights: str = "point", dtype: torch.dtype = torch.float64
) -> tuple[Population, KernelTrace]:
    """Four members of one small network with the factors, or the masks, that the text asks for."""
    sharing = parse(text, "sharing", SHARING)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        nets = [build().to(dtype) for _ in range(MEMBERS)]
    trace = trace_kernels(nets[0], data()[0][:2].to(dtype))

    def stream(member: int) -> torch.Generator:
        return torch.Generator().manual_seed(member)

    shared = sharing.predicate(nets[0], trace)
    population = sharing.add_factors(populate(nets.__getitem__, MEMBERS, shared), trace, stream)
    return parse(weights, "weights", WEIGHTS).init(population, trace, stream), trace


def method_of(sharing: Sharing, trace: KernelTrace, **changed) -> StepConfig:
    weights = changed.pop("weights", Point())
    made = StepConfig(
        Categorical(CLASSES),
        weights.in_network(trace, bias_inside=sharing.bias_inside),
        None,
        Updater(
            changed.pop("optimizer", make_optimizer("sgd", momentum=0.0)),
            factor_lr_multiplier=changed.pop("factor_lr_multiplier", sharing.lr_multiplier),
            factor_decay=sharing.decay,
        ),
        gamma=sharing.gamma_of(members=MEMBERS, smooth=None),
    )
    return replace(made, **changed)


def initial_state(population: Population, chosen: StepConfig) -> State:
    moments = [chosen.updater.init(named) for named in (population.own, population.shared)]
    return State(population, moments[0], moments[1], torch.ones(MEMBERS, dtype=torch.bool))


def same_batch(dtype: torch.dtype = torch.float64, lr: float = RATE) -> Batch:
    x, y = data()
    inputs, labels = x.to(dtype).expand(MEMBERS, *x.shape), y.expand(MEMBERS, *y.shape)
    return Batch(lambda group: (inputs[group], labels[group]), lr)


def stepped(
    state: State, chosen: StepConfig, how: Engine, given: Batch, steps: int = STEPS, probe: Probe | None = None
) -> Population:
    with assemble(how, build().to(given.fetch(slice(1))[0].dtype)) as team:
        for _ in range(steps):
            step(team, chosen, state, given, probe)
    return state.population


def scaled(parameters: Named, member: int, inside: bool = False) -> Named:
    """The plain parameters of one member of the two-layer network; `parameters` as a population holds them."""
    found = {}
    for layer in ("body.0", "head"):
        bias = parameters[f"{layer}.bias"]
        mine = bias[member] if bias.dim() == 2 else bias
        ones = torch.ones((), dtype=bias.dtype)
        into, out = (parameters.get(f"{layer}.weight{end}") for end in (":in", ":out"))
        into, out = ones if into is None else into[member], ones if out is None else out[member]
        found[f"{layer}.weight"] = parameters[f"{layer}.weight"] * into * (out.unsqueeze(-1) if out.dim() else out)
        found[f"{layer}.bias"] = mine * out if inside else mine
    return found


def reference(population: Population, reduce, *, inside: bool, rate: float = RATE) -> Named:
    """Plain autograd and one optimizer on the reduced losses of explicit members."""
    x, y = data()
    parameters = {k: v.clone().requires_grad_() for k, v in {**population.own, **population.shared}.items()}
    optimizer = torch.optim.SGD(list(parameters.values()), lr=rate)
    for _ in range(STEPS):
        optimizer.zero_grad()
        outputs = [functional_call(build(), scaled(parameters, i, inside), (x,)) for i in range(MEMBERS)]
        losses = torch.stack([nn.functional.cross_entropy(each, y) for each in outputs])
        reduce(losses).backward()
        optimizer.step()
    return {name: tensor.detach() for name, tensor in parameters.items()}


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("kind", ["rank-one:bias=shared", "rank-one-uv"])
def test_the_dictionary_between_reductions_of_the_loss_and_gamma(kind: str, how: Engine):
    """One optimizer on the mean of losses: gamma 1, factors times 1/M; on the sum: gamma M, factors as all."""
    sign = "," if ":" in kind else ":"
    for settings, reduce in ((f"gamma=1,lr_multiplier={1 / MEMBERS}", torch.mean), ("gamma=M", torch.sum)):
        sharing = parse(f"{kind}{sign}{settings}", "sharing", SHARING)
        population, trace = beginning(kind)
        expected = reference(population, reduce, inside=sharing.bias == "inside")
        chosen = method_of(sharing, trace)
        found = stepped(initial_state(population, chosen), chosen, how, same_batch())
        for name, tensor in {**found.own, **found.shared}.items():
            assert (tensor - expected[name]).abs().max() <= 1e-12, name


@pytest.mark.parametrize(("gamma", "factor"), [("1", 1.0), ("M", 4.0), ("2.5", 2.5)])
def test_shared_tensors_move_by_gamma_over_m_times_the_sum(gamma: str, factor: float):
    """And members' own biases by their own gradients, whatever gamma is."""
    sharing = parse(f"rank-one:gamma={gamma}", "sharing", SHARING)
    population, trace = beginning("rank-one:bias=own")
    before, chosen = population.clone(), method_of(sharing, trace)
    after = stepped(initial_state(population, chosen), chosen, ENGINES["stacked"], same_batch(), steps=1)
    x, y = data()
    parameters = {k: v.clone().requires_grad_() for k, v in {**before.own, **before.shared}.items()}
    outputs = [functional_call(build(), scaled(parameters, i), (x,)) for i in range(MEMBERS)]
    total = torch.stack([nn.functional.cross_entropy(each, y) for each in outputs]).sum()
    slopes = dict(zip(parameters, torch.autograd.grad(total, list(parameters.values())), strict=True))
    for name, tensor in after.shared.items():
        expected = before.shared[name] - RATE * factor / MEMBERS * slopes[name]
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-14)
    for name, tensor in after.own.items():
        torch.testing.assert_close(tensor, before.own[name] - RATE * slopes[name], rtol=0, atol=1e-14)


@EVERY
@pytest.mark.parametrize("text", ["rank-one:init=ones", "rank-one:init=ones,gamma=M", "rank-one-uv:init=ones"])
def test_members_that_begin_equal_stay_equal(text: str, how: Engine):
    """Bit for bit where members run one by one; a stacked product rounds rows by where they stand in it (float32)."""
    population, trace = beginning(text, dtype=torch.float32)
    for name, tensor in population.own.items():
        if name.endswith("bias"):
            tensor[:] = tensor[0].clone()
    before = population.clone()
    chosen = method_of(parse(text, "sharing", SHARING), trace)
    after = stepped(initial_state(population, chosen), chosen, how, same_batch(torch.float32))
    for name, tensor in after.own.items():
        bound = 1e-6 if how.stacked else 0.0
        assert (tensor - tensor[0]).abs().max() <= bound, name
        assert (tensor - before.own[name]).abs().max() > 1e-3, name  # they did move


@pytest.mark.parametrize("how", ALONE, ids=lambda e: e.name)
@pytest.mark.parametrize("decay", ["coupled", "decoupled"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weight_decay_reaches_factors_only_when_asked_to(name: str, decay, how: Engine):
    found = {}
    for text, strength in (("rank-one", 0.0), ("rank-one", 0.5), ("rank-one:decay=yes", 0.5)):
        population, trace = beginning("rank-one:bias=own")
        optimizer = make_optimizer(name, momentum=0.0, weight_decay=strength, decay=decay)
        chosen = method_of(parse(text, "sharing", SHARING), trace, optimizer=optimizer)
        found[text, strength] = stepped(initial_state(population, chosen), chosen, how, same_batch(), steps=1)
    slow, usual, decayed = found.values()
    for key in slow.own:
        factor = key.endswith((":in", ":out"))
        assert torch.equal(usual.own[key], slow.own[key]) == factor, key
        assert not torch.equal(decayed.own[key], slow.own[key]), key
    assert all(not torch.equal(usual.shared[key], slow.shared[key]) for key in slow.shared)


@pytest.mark.parametrize("decay", ["coupled", "decoupled"])
def test_a_member_may_move_while_another_still_needs_its_graph(decay):
    """What happens with workers side by side, in one order of events that they may come in."""
    population, trace = beginning("own")
    optimizer = make_optimizer("sgd", momentum=0.0, weight_decay=0.1, decay=decay)
    chosen = method_of(parse("own", "sharing", SHARING), trace, optimizer=optimizer)
    state = initial_state(population, chosen)
    with assemble(ENGINES["loop"], build()) as team:
        first, second = (local_pass(team, chosen, state, slice(i, i + 1), same_batch()) for i in range(2))
        expected, _ = pull_back(first, keep=True)
        chosen.updater.move(state, second.result(pull_back(second)), same_batch())
        found, _ = pull_back(first)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@EVERY
@pytest.mark.parametrize("multiplier", [0.0, 0.25])
def test_lr_multiplier_multiplies_the_learning_rate_of_factors_alone(multiplier: float, how: Engine):
    moved = {}
    for each in (1.0, multiplier):
        population, trace = beginning("rank-one:bias=own")
        chosen = method_of(Sharing("rank-one", lr_multiplier=each), trace)
        before = population.clone()
        after = stepped(initial_state(population, chosen), chosen, how, same_batch(), steps=1)
        moved[each] = {name: tensor - before.own[name] for name, tensor in after.own.items()}
    for name, tensor in moved[1.0].items():
        share = multiplier if ":" in name else 1.0
        torch.testing.assert_close(moved[multiplier][name], share * tensor, rtol=0, atol=1e-15)


@EVERY
def test_a_member_that_stands_still_does_not_pull_at_what_all_share(how: Engine):
    """The shared move is gamma / M times the sum over the others, and the member's own tensors stay."""
    population, trace = beginning("rank-one:gamma=M")
    before, chosen = population.clone(), method_of(parse("rank-one:gamma=M", "sharing", SHARING), trace)
    state = initial_state(population, chosen)
    state.active[1] = False
    after = stepped(state, chosen, how, same_batch(), steps=1)
    x, y = data()
    parameters = {k: v.clone().requires_grad_() for k, v in {**before.own, **before.shared}.items()}
    outputs = [functional_call(build(), scaled(parameters, i), (x,)) for i in (0, 2, 3)]
    total = torch.stack([nn.functional.cross_entropy(each, y) for each in outputs]).sum()
    slopes = dict(zip(parameters, torch.autograd.grad(total, list(parameters.values())), strict=True))
    for name, tensor in {**after.own, **after.shared}.items():
        start = {**before.own, **before.shared}[name]
        torch.testing.assert_close(tensor, start - RATE * slopes[name], rtol=0, atol=1e-14)
    assert all(torch.equal(tensor[1], before.own[name][1]) for name, tensor in after.own.items())


def chained(population: Population, naive: list[dict[str, Tensor]]) -> tuple[Named, Named]:
    """Gradients of own tensors and of shared ones (summed), from those of the members' spelled-out kernels."""
    own = {name: torch.zeros_like(tensor) for name, tensor in population.own.items()}
    shared = {name: torch.zeros_like(tensor) for name, tensor in population.shared.items()}
    for i, slopes in enumerate(naive):
        for layer in ("body.0", "head"):
            weight, slope = population.shared[f"{layer}.weight"], slopes[f"{layer}.weight"]
            into, out = (population.own[f"{layer}.weight{end}"][i] for end in (":in", ":out"))
            for a in range(weight.shape[0]):
                for b in range(weight.shape[1]):
                    own[f"{layer}.weight:in"][i, b] += slope[a, b] * weight[a, b] * out[a]
                    own[f"{layer}.weight:out"][i, a] += slope[a, b] * weight[a, b] * into[b]
                    shared[f"{layer}.weight"][a, b] += slope[a, b] * out[a] * into[b]
            own[f"{layer}.bias"][i] = slopes[f"{layer}.bias"]
    return own, shared


@EVERY
@pytest.mark.parametrize("measured", [False, True], ids=["", "measured"])
@pytest.mark.parametrize("text", ["input-gradients", "outputs:of=logits", "features"])
def test_a_repulsive_batch_ensemble_applies_the_naive_gradient(text: str, measured: bool, how: Engine):
    """Loops over members, pairs and examples on spelled-out networks, then the chain rule entry by entry."""
    sharing = parse("rank-one:gamma=2", "sharing", SHARING)
    population, trace = beginning("rank-one:bias=own")
    before, coupling = population.clone(), coupling_of(text)
    nets = [build() for _ in range(MEMBERS)]
    for i, net in enumerate(nets):
        net.load_state_dict(scaled({**before.own, **before.shared}, i))
    naive = Naive(nets, *data(), coupling.repulsion, coupling.strength(0), coupling.loss_scale(0)).gradients()
    own, shared = chained(before, naive)
    chosen = method_of(sharing, trace, coupling=coupling)
    state = initial_state(population, chosen)
    probe = Probe(measured)
    after = stepped(state, chosen, how, same_batch(lr=1.0), steps=1, probe=probe)
    for name, tensor in after.own.items():
        bound = 1e-9 * own[name].abs().max().item()
        torch.testing.assert_close(before.own[name] - tensor, own[name], rtol=0, atol=bound)
    for name in ("body.0.weight", "head.weight"):
        bound = 1e-9 * shared[name].abs().max().item()
        expected = 2 / MEMBERS * shared[name]
        torch.testing.assert_close(before.shared[name] - after.shared[name], expected, rtol=0, atol=bound)
    assert bool(probe.stats) is measured


@pytest.mark.parametrize("how", ALONE, ids=lambda e: e.name)
@pytest.mark.parametrize("measured", [False, True], ids=["", "measured"])
def test_a_member_that_stands_still_does_not_push_at_what_all_share(how: Engine, measured: bool):
    """It is seen by the others; but a force on it must not reach the kernels that it does not move any more."""
    population, trace = beginning("rank-one:bias=own")
    before, coupling = population.clone(), coupling_of("outputs:of=logits,weight=1")
    nets = [build() for _ in range(MEMBERS)]
    for i, net in enumerate(nets):
        net.load_state_dict(scaled({**before.own, **before.shared}, i))
    naive = Naive(nets, *data(), coupling.repulsion, coupling.strength(0), coupling.loss_scale(0)).gradients()
    naive[2] = {name: torch.zeros_like(slope) for name, slope in naive[2].items()}
    _, shared = chained(before, naive)
    chosen = method_of(parse("rank-one:gamma=M", "sharing", SHARING), trace, coupling=coupling)
    state = initial_state(population, chosen)
    state.active[2] = False
    probe = Probe(measured)
    after = stepped(state, chosen, how, same_batch(lr=1.0), steps=1, probe=probe)
    for name in ("body.0.weight", "head.weight"):
        bound = 1e-9 * shared[name].abs().max().item()
        torch.testing.assert_close(before.shared[name] - after.shared[name], shared[name], rtol=0, atol=bound)


@EVERY
def test_masks_are_not_trained_and_hide_what_they_cover(how: Engine):
    """Sharing everything, each member's gradient reaches the kernel only where its mask lets through."""
    population, trace = beginning("all", weights="masks")
    assert list(population.buffers) == ["head.weight:in"]
    before = population.clone()
    population.buffers["head.weight:in"][:, 0] = 0.0  # nobody uses the first feature
    masks = population.buffers["head.weight:in"].clone()
    chosen = method_of(parse("all:gamma=M", "sharing", SHARING), trace, weights=Masks())
    after = stepped(initial_state(population, chosen), chosen, how, same_batch(), steps=1)
    assert torch.equal(after.buffers["head.weight:in"], masks)
    x, y = data()
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in before.shared.items()}
    losses = []
    for mask in masks:
        hidden = (x @ parameters["body.0.weight"].T + parameters["body.0.bias"]).tanh() * mask
        outputs = hidden @ parameters["head.weight"].T + parameters["head.bias"]
        losses.append(nn.functional.cross_entropy(outputs, y))
    slopes = torch.autograd.grad(torch.stack(losses).sum(), list(parameters.values()))
    for (name, start), slope in zip(before.shared.items(), slopes, strict=True):
        torch.testing.assert_close(after.shared[name], start - RATE * slope, rtol=0, atol=1e-13)
    assert torch.equal(after.shared["head.weight"][:, 0], before.shared["head.weight"][:, 0])


def test_the_crowd_is_what_these_references_take_it_for():
    assert (MEMBERS, BATCH, INPUTS) == (4, 6, 5)
    assert list(dict(build().named_parameters())) == ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]
