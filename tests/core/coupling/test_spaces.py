"""What members show of weights, outputs and features, and how they are pushed there."""

import re
from pathlib import Path

import pytest
import torch
from space_inputs import labels, networks, present, randn, repulsion
from torch import Tensor, nn

import murmuration.core.coupling as coupling
from murmuration.core.coupling import (
    Coupling,
    FeatureSpace,
    InputGradientSpace,
    OutputPrior,
    OutputSpace,
    Repulsion,
    WeightSpace,
)
from murmuration.core.coupling.estimators import ESTIMATORS, ssge_at
from murmuration.core.coupling.space import NEEDS, mean_cosine
from murmuration.core.coupling.spaces import leading_directions
from murmuration.models.nets.dense import with_head
from murmuration.system.errors import Misuse

MEMBERS, BATCH, INPUTS, CLASSES = 4, 6, 5, 3


def crowd() -> list[nn.Module]:
    return networks(lambda: with_head([nn.Linear(INPUTS, 4), nn.Tanh()], 4, CLASSES), MEMBERS)


def examples() -> tuple[Tensor, Tensor]:
    return randn(BATCH, INPUTS), labels(BATCH, CLASSES)


def outputs(**settings) -> OutputSpace:
    return OutputSpace(**{"bandwidth": "rde", **settings})


def features(**settings) -> FeatureSpace:
    return FeatureSpace(**{"bandwidth": "code", **settings})


def test_weights_are_shown_as_one_vector_and_feel_the_force_itself():
    nets, (x, y) = crowd(), examples()
    seen = present(nets, x, y)
    signature = WeightSpace(bandwidth="rde").features(seen)
    named = [sorted(net.named_parameters(), key=lambda pair: pair[0]) for net in nets]  # one order, also after a kill
    flat = torch.stack([torch.cat([weight.detach().flatten() for _, weight in pairs]) for pairs in named])
    assert torch.equal(signature.detach(), flat.unsqueeze(1))
    interaction, gradients = repulsion(WeightSpace(bandwidth="rde"), seen)
    found = torch.cat([gradients[name].flatten(1) for name in sorted(gradients)], dim=1)
    assert torch.equal(found, interaction.cotangents[:, 0])
    torch.testing.assert_close(found, ESTIMATORS["kde"](flat.unsqueeze(1), "rde").cotangents[:, 0], rtol=0, atol=0)


def test_outputs_are_shown_as_probabilities_logits_or_means():
    nets, (x, y) = crowd(), examples()
    seen = present(nets, x, y)
    logits = torch.stack([net(x) for net in nets]).detach()
    for of, expected in {"probs": logits.softmax(-1), "logits": logits}.items():
        found = outputs(of=of).features(seen).detach()
        torch.testing.assert_close(found, expected.flatten(1).unsqueeze(1), rtol=0, atol=1e-14)
    means = outputs()._values(
        seen.outputs, present(networks(lambda: nn.Linear(INPUTS, 2), MEMBERS), x, randn(BATCH, 2))
    )
    torch.testing.assert_close(means.detach(), logits[..., :2], rtol=0, atol=1e-14)  # the third is a spread


def test_a_share_of_the_outputs_are_those_of_the_first_rows():
    seen = present(crowd(), *examples())
    whole = outputs().features(seen).detach().view(MEMBERS, BATCH, CLASSES)
    assert torch.equal(outputs(batch_fraction=0.5).features(seen).detach().view(MEMBERS, 3, CLASSES), whole[:, :3])
    assert [OutputSpace(batch_fraction=share).rows(10) for share in (0.01, 0.25, 0.5, 1.0)] == [1, 2, 5, 10]


def test_function_space_of_a_linear_model_is_weight_space_seen_through_the_inputs():
    """F = X w: the weights feel X' r, r the force between functions."""
    nets, x = networks(lambda: nn.Linear(INPUTS, 1, bias=False), MEMBERS), randn(INPUTS, INPUTS)
    for estimator in ("kde", "sge", "ssge", "blob"):
        space = outputs(estimator=estimator)
        _, gradients = repulsion(space, present(nets, x, randn(INPUTS, 1)))
        functions = torch.stack([net.weight[0].detach() @ x.T for net in nets])
        r = ESTIMATORS[estimator](functions.unsqueeze(1), "rde").cotangents[:, 0]
        torch.testing.assert_close(gradients["weight"][:, 0], r @ x, rtol=1e-10, atol=1e-12)


PENALTIES = {
    "gaussian": lambda v, scale: scale / 2 * v.square().sum(),
    "cauchy": lambda v, scale: (1 + scale * v.square()).log().sum(),
}


@pytest.mark.parametrize("kind", PENALTIES)
def test_gradients_of_priors_by_finite_differences(kind: str):
    values, scale, step = randn(3, 4), 0.7, 1e-6
    found = OutputPrior(kind, scale).gradient(values)
    for index in ((0, 0), (1, 2), (2, 3)):
        bump = torch.zeros_like(values)
        bump[index] = step
        slope = (PENALTIES[kind](values + bump, scale) - PENALTIES[kind](values - bump, scale)) / (2 * step)
        assert found[index].item() == pytest.approx(slope.item(), abs=1e-8)
    assert torch.equal(OutputPrior().gradient(values), torch.zeros_like(values))


@pytest.mark.parametrize("kind", PENALTIES)
def test_priors_pull_what_is_shown_towards_zero(kind: str):
    seen = present(crowd(), *examples())
    plain, _ = repulsion(outputs(of="logits"), seen)
    interaction, _ = repulsion(outputs(of="logits", prior=OutputPrior(kind, 0.3)), seen)
    logits = seen.outputs.detach().flatten(1).unsqueeze(1)
    torch.testing.assert_close(
        interaction.cotangents - plain.cotangents, OutputPrior(kind, 0.3).gradient(logits), rtol=0, atol=1e-13
    )
    plain, _ = repulsion(features(), seen)
    interaction, _ = repulsion(features(prior=OutputPrior(kind, 0.3)), seen)
    mine = seen.features.detach().flatten(1)
    pull = (interaction.cotangents - plain.cotangents)[:, 0]
    torch.testing.assert_close(pull, OutputPrior(kind, 0.3).gradient(mine), rtol=0, atol=1e-13)


def test_a_prior_of_functions_is_estimated_from_drawn_networks():
    """The score of the outputs of M others, at the members' outputs; others are not pushed."""
    nets, (x, y) = crowd(), examples()
    space, scale = outputs(prior=OutputPrior("weights", 0.5)), 0.5
    seen = present(nets, x, y)
    signature = space.features(seen)
    stream, others = torch.Generator().manual_seed(7), crowd()  # the stream that `present` draws from
    drawn = {n: scale * torch.randn(w.shape, generator=stream, dtype=w.dtype) for n, w in seen.weights.items()}
    for i, net in enumerate(others):
        net.load_state_dict({name: weight[i] for name, weight in drawn.items()})
    functions = torch.stack([net(x).softmax(-1).flatten() for net in others]).detach()
    torch.testing.assert_close(signature[:, 1].detach(), functions, rtol=0, atol=1e-12)
    interaction = space.repulsion(signature.detach())
    mine = signature[:, :1].detach()
    expected = ESTIMATORS["kde"](mine, "rde").cotangents[:, 0] - ssge_at(functions, mine[:, 0], "rde")
    torch.testing.assert_close(interaction.cotangents[:, 0], expected, rtol=0, atol=1e-11 * expected.abs().max().item())
    assert torch.equal(interaction.cotangents[:, 1], torch.zeros_like(functions))
    assert torch.equal(signature[:, :1].detach(), outputs().features(seen).detach())


def test_features_are_pushed_along_what_the_losses_feel():
    """Second derivation: the row space of all loss gradients from a singular value decomposition."""
    nets, (x, y) = crowd(), examples()
    space = features(projection=2)
    seen = present(nets, x, y)
    signature = space.features(seen)
    losses = []
    for i, net in enumerate(nets):
        phi = net.body(x).detach().requires_grad_()
        loss = nn.functional.cross_entropy(net.head(phi), y, reduction="sum")
        losses.append(torch.autograd.grad(loss, phi)[0].flatten())
        torch.testing.assert_close(signature[i, 0].detach(), phi.detach().flatten(), rtol=0, atol=1e-14)
        torch.testing.assert_close(BATCH * signature[i, 1].detach(), losses[i], rtol=0, atol=1e-13)
    basis = torch.linalg.svd(torch.stack(losses), full_matrices=False)[2][:2]  # (2, B F), the largest first
    interaction = space.repulsion(signature.detach())
    z = signature[:, 0].detach() @ basis.T
    r = ESTIMATORS["kde"](z.unsqueeze(1), "code")
    torch.testing.assert_close(interaction.cotangents[:, 0], r.cotangents[:, 0] @ basis, rtol=0, atol=1e-11)
    torch.testing.assert_close(interaction.log_density, r.log_density, rtol=0, atol=1e-11)
    assert torch.equal(interaction.cotangents[:, 1], torch.zeros_like(interaction.cotangents[:, 1]))
    assert not signature[:, 1].detach().requires_grad
    _, gradients = repulsion(space, seen)
    assert gradients["body.0.weight"].abs().max() > 1e-4
    assert all(torch.equal(gradients[name], torch.zeros_like(gradients[name])) for name in ("head.weight", "head.bias"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_are_orthonormal_even_if_gradients_are_nearly_the_same(dtype: torch.dtype):
    """Singular values from 1 to 1e-3: their squares are as far apart as single precision reaches."""
    gradients = (randn(4, 4, seed=3) @ torch.diag(torch.tensor([1.0, 0.1, 0.01, 1e-3]).double()) @ randn(4, 50)).to(
        dtype
    )
    singular, right = torch.linalg.svd(gradients.double(), full_matrices=False)[1:]
    assert singular[-1] / singular[0] < 1e-3
    for which, chosen in (("largest", right[:2]), ("smallest", right[-2:])):
        basis = leading_directions(gradients, 2, which).double()
        torch.testing.assert_close(basis.T @ basis, torch.eye(2).double(), rtol=0, atol=1e-5)
        torch.testing.assert_close(basis @ basis.T, chosen.T @ chosen, rtol=0, atol=1e-4)  # one plane


def test_without_any_gradient_there_is_no_direction():
    interaction = features().repulsion(torch.stack([randn(MEMBERS, 8), torch.zeros(MEMBERS, 8).double()], dim=1))
    assert torch.equal(interaction.cotangents, torch.zeros(MEMBERS, 2, 8).double())


def test_inputs_of_one_number_are_refused():
    x = randn(20, 1).float()
    with pytest.raises(Misuse, match=r"inputs of one number: normalised gradients are .* such as x/2 and") as caught:
        Repulsion(InputGradientSpace()).prepare(x, members=2, batch=8, epochs=1)
    assert "\n" not in str(caught.value)
    assert Repulsion(InputGradientSpace()).prepare(x, members=1, batch=8, epochs=1) is None
    for space in (OutputSpace(), WeightSpace()):
        assert Repulsion(space).prepare(x, members=2, batch=8, epochs=1) is not None


def test_the_weight_of_a_coupling_knows_small_data():
    x = randn(20, 3).float()
    for weight, batch, expected in (("1/B", 8, 1 / 8), ("1/B", 32, 1 / 20), ("1/N", 8, 1 / 20)):
        made = Repulsion(OutputSpace(), weight=weight).prepare(x, members=2, batch=batch, epochs=1)
        assert made is not None
        assert made.strength(0) == expected


def test_cosines_are_of_what_is_compared():
    signatures = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]]])  # beside: gradients, or others
    assert Coupling(Repulsion(features()), features(), 1.0).cosine(signatures) == 0.0
    assert mean_cosine(signatures) == pytest.approx(0.5)
    three = torch.tensor([[[1.0, 0.0]], [[0.0, 5.0]], [[-1.0, 0.0]]])
    assert mean_cosine(three) == pytest.approx(-1 / 3)  # pairs: 0, -1, 0


def test_the_readme_lists_all_needs():
    text = Path(coupling.__file__).with_name("README.md").read_text()
    table = text.partition("| need | the step |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == NEEDS
