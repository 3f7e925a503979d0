"""Repulsion of input gradients, from networks to the gradients of their weights."""

import math

import pytest
import torch
from space_inputs import labels, networks, present, randn, repulsion
from torch import Tensor, nn

from murmuration.core.coupling import InputGradientSpace

MEMBERS, BATCH, INPUTS, CLASSES = 4, 7, 5, 3


def space(**settings) -> InputGradientSpace:
    return InputGradientSpace(**{"bandwidth": "code", **settings})


def linear(*rows: list[list[float]]) -> list[nn.Module]:
    """Linear models without bias that have these weights (classes, inputs)."""
    nets = networks(lambda: nn.Linear(len(rows[0][0]), len(rows[0]), bias=False), len(rows))
    for net, weight in zip(nets, rows, strict=True):
        net.weight.data = torch.tensor(weight, dtype=torch.float64)
    return nets


def mlp(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 6), activation(), nn.Linear(6, 4), activation(), nn.Linear(4, CLASSES))


def crowd(activation: type[nn.Module] = nn.Tanh) -> list[nn.Module]:
    return networks(lambda: mlp(activation), MEMBERS)


def examples() -> tuple[Tensor, Tensor]:
    return randn(BATCH, INPUTS), labels(BATCH, CLASSES)


def test_input_gradients_of_linear_models_are_their_rows():
    nets, (x, y) = networks(lambda: nn.Linear(INPUTS, CLASSES), MEMBERS), examples()
    seen = present(nets, x, y)
    for i, net in enumerate(nets):
        rows = net.weight.detach()[y]
        found = space().features(seen)[i].detach()
        torch.testing.assert_close(found, rows / rows.norm(dim=1, keepdim=True), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("bandwidth", "r"), [("code", 1.25), ("all", 1.25), ("off", 1.5), ("algorithm-1", 1.0625)])
def test_two_linear_models_are_equally_alike_at_any_angle_and_length(bandwidth: str, r: float):
    for angle, length in ((0.1, 1.0), (1.0, 20.0), (3.0, 0.01)):
        nets = linear([[1.0, 0.0]], [[length * math.cos(angle), length * math.sin(angle)]])
        interaction, _ = repulsion(space(bandwidth=bandwidth), present(nets, randn(BATCH, 2), labels(BATCH, 1)))
        torch.testing.assert_close(
            interaction.log_density, torch.full_like(interaction.log_density, math.log(r)), rtol=0, atol=6e-11
        )


def test_two_orthogonal_linear_models_are_turned_apart():
    nets = linear([[1.0, 0.0]], [[0.0, 1.0]])
    _, gradients = repulsion(space(), present(nets, randn(1, 2), labels(1, 1)))
    expected = torch.tensor([[[0.0, 0.4 * math.log(2)]], [[0.4 * math.log(2), 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(gradients["weight"], expected, rtol=0, atol=1e-11)


def test_ten_orthonormal_linear_models():
    rows = torch.eye(10, dtype=torch.float64)
    interaction, gradients = repulsion(
        space(), present(linear(*rows.unsqueeze(1).tolist()), randn(3, 10), labels(3, 1))
    )
    torch.testing.assert_close(
        interaction.log_density, torch.full_like(interaction.log_density, 0.6418538862), rtol=0, atol=6e-11
    )
    torch.testing.assert_close(gradients["weight"][:, 0], 0.1211886891 * (1 - rows), rtol=0, atol=6e-11)


def test_gradients_of_a_logit_and_of_a_log_probability():
    nets, y = linear([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(3, dtype=torch.int64)
    seen = present(nets, randn(3, 2), y)
    logit, log_prob = (space(of=of).features(seen)[0].detach() for of in ("logit", "log-prob"))
    torch.testing.assert_close(logit, torch.tensor([1.0, 0.0], dtype=torch.float64).expand(3, 2), rtol=1e-12, atol=0)
    slope = torch.tensor([1.0, -1.0], dtype=torch.float64) / math.sqrt(2)  # w_0 - w_1, whatever x is
    torch.testing.assert_close(log_prob, slope.expand(3, 2), rtol=1e-12, atol=0)


def test_rows_of_absent_classes_feel_nothing_through_logits():
    nets, x = networks(lambda: nn.Linear(INPUTS, CLASSES), MEMBERS), randn(BATCH, INPUTS)
    y = labels(BATCH, 2)  # never class 2
    for of, silent in (("logit", True), ("log-prob", False)):
        _, gradients = repulsion(space(of=of), present(nets, x, y))
        assert torch.equal(gradients["weight"][:, 2], torch.zeros(MEMBERS, INPUTS, dtype=torch.float64)) is silent
        assert gradients["weight"][:, :2].abs().amax((1, 2)).min() > 1e-4


def test_neither_a_constant_nor_a_factor_of_the_outputs_counts():
    nets, (x, y) = crowd(), examples()
    interaction, gradients = repulsion(space(), present(nets, x, y))
    assert torch.equal(gradients["4.bias"], torch.zeros(MEMBERS, CLASSES, dtype=torch.float64))
    length = (nets[1][4].weight.detach() * gradients["4.weight"][1]).sum()  # the slope along a factor of the outputs
    assert length.abs() < 1e-12 * gradients["4.weight"][1].norm()
    nets[0][4].bias.data += 3.0
    nets[1][4].weight.data *= 40.0
    again, changed = repulsion(space(), present(nets, x, y))
    torch.testing.assert_close(again.log_density, interaction.log_density, rtol=0, atol=1e-12)
    torch.testing.assert_close(changed["0.weight"], gradients["0.weight"], rtol=0, atol=1e-12)
    torch.testing.assert_close(40 * changed["4.weight"][1], gradients["4.weight"][1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
def test_rotated_inputs_with_rotated_weights_feel_the_same(bandwidth: str):
    nets, (x, y) = crowd(), examples()
    rotation = torch.linalg.qr(randn(INPUTS, INPUTS, seed=5))[0]
    interaction, gradients = repulsion(space(bandwidth=bandwidth), present(nets, x, y))
    for net in nets:
        net[0].weight.data = net[0].weight.data @ rotation
    again, turned = repulsion(space(bandwidth=bandwidth), present(nets, x @ rotation, y))
    torch.testing.assert_close(again.log_density, interaction.log_density, rtol=0, atol=1e-12)
    torch.testing.assert_close(turned["0.weight"], gradients["0.weight"] @ rotation, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_last_layer_of_zeros_shows_nothing_and_feels_nothing(dtype: torch.dtype):
    nets, (x, y) = crowd(), examples()
    for net in nets:
        nn.init.zeros_(net.to(dtype)[4].weight)
    interaction, gradients = repulsion(space(), present(nets, x.to(dtype), y))
    assert interaction.mean_kernel.item() == 1.0
    assert interaction.log_density.tolist() == pytest.approx([math.log(MEMBERS)] * MEMBERS, rel=1e-6)
    for name, gradient in gradients.items():
        assert torch.equal(gradient, torch.zeros_like(gradient)), name


def test_identical_members_feel_nothing():
    nets, (x, y) = [crowd()[0]] * MEMBERS, examples()
    interaction, gradients = repulsion(space(), present(nets, x, y))
    torch.testing.assert_close(
        interaction.log_density, torch.full_like(interaction.log_density, math.log(MEMBERS)), rtol=1e-12, atol=0
    )
    assert all(gradient.abs().max() == 0 for gradient in gradients.values())


def test_repulsion_moves_no_bias_of_a_relu_network():
    x, y = examples()
    for activation, moved in ((nn.ReLU, False), (nn.Tanh, True)):
        _, gradients = repulsion(space(), present(crowd(activation), x, y))
        assert bool(gradients["0.bias"].abs().max() > 0) is moved
        assert bool(gradients["2.bias"].abs().max() > 0) is moved
        assert gradients["0.weight"].abs().max() > 1e-4


SLOPES = {  # activation -> its first and second derivative
    nn.Tanh: (lambda a: 1 - a.tanh() ** 2, lambda a: -2 * a.tanh() * (1 - a.tanh() ** 2)),
    nn.ReLU: (lambda a: (a > 0).double(), torch.zeros_like),
}


def reverse_over_forward(net: nn.Module, x: Tensor, y: int, c: Tensor) -> dict[str, Tensor]:
    """Gradients of c . grad_x f_y by the weights of a network of three layers, without differentiating a gradient."""
    layers, (first, second) = [net[0], net[2]], SLOPES[type(net[1])]
    h, u, kept = x, c, []
    for layer in layers:
        a, tangent = layer(h), layer.weight @ u
        kept.append((h, u, a, tangent))
        h, u = net[1](a), first(a) * tangent
    found = {"4.weight": torch.zeros_like(net[4].weight), "4.bias": torch.zeros_like(net[4].bias)}
    found["4.weight"][y] = u
    u_bar, h_bar = net[4].weight[y], torch.zeros_like(h)
    for index, layer, (h, u, a, tangent) in zip((2, 0), layers[::-1], kept[::-1], strict=True):
        tangent_bar = first(a) * u_bar
        a_bar = second(a) * tangent * u_bar + first(a) * h_bar
        found[f"{index}.weight"] = torch.outer(tangent_bar, u) + torch.outer(a_bar, h)
        found[f"{index}.bias"] = a_bar
        u_bar, h_bar = layer.weight.T @ tangent_bar, layer.weight.T @ a_bar
    return found


@pytest.mark.parametrize("activation", SLOPES)
def test_weights_feel_what_reverse_over_forward_mode_says(activation: type[nn.Module]):
    """dr/dg = (I - s s') (dr/ds) / |g|, then a tangent pass and its adjoint, one example at a time."""
    nets, (x, y) = crowd(activation), examples()
    seen = present(nets, x, y)
    interaction, gradients = repulsion(space(), seen)
    g = torch.autograd.grad(seen.outputs.gather(-1, seen.y.unsqueeze(-1)).sum(), seen.x, retain_graph=True)[0]
    with torch.no_grad():
        for i, net in enumerate(nets):
            total = {name: torch.zeros_like(weight) for name, weight in net.named_parameters()}
            for b in range(BATCH):
                s, along = g[i, b] / g[i, b].norm(), interaction.cotangents[i, b]
                c = (along - s * (s @ along)) / g[i, b].norm()
                for name, gradient in reverse_over_forward(net, x[b], int(y[b]), c).items():
                    total[name] += gradient
            for name, gradient in total.items():
                torch.testing.assert_close(gradients[name][i], gradient, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_class_behind_batch_normalisation_has_no_gradient(dtype: torch.dtype):
    """A batch of normalised values sums to a constant, so the sum of one logit over the batch does not move."""

    def build() -> nn.Module:
        norm = nn.BatchNorm1d(6, track_running_stats=False)
        return nn.Sequential(nn.Linear(INPUTS, 6), norm, nn.Linear(6, CLASSES))

    nets, x = [net.to(dtype) for net in networks(build, MEMBERS)], randn(BATCH, INPUTS).to(dtype)
    one, several = (present(nets, x, y) for y in (torch.ones(BATCH, dtype=torch.int64), labels(BATCH, CLASSES)))
    g = space().gradients(one.outputs, one.x, one.y)
    assert g.norm(dim=-1).max() < 16 * torch.finfo(dtype).eps  # roundings, and they are not taken for directions
    _, gradients = repulsion(space(), several)
    assert gradients["0.weight"].abs().max() > 1e-4
    _, gradients = repulsion(space(), one)
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in gradients.values())


def test_regression_shows_the_gradient_of_the_summed_means():
    """Of four outputs, two are means and two are spreads."""
    nets, x = networks(lambda: nn.Linear(INPUTS, 4), MEMBERS), randn(BATCH, INPUTS)
    seen = present(networks(lambda: nn.Linear(INPUTS, 2), MEMBERS), x, randn(BATCH, 2))
    wide = present(nets, x, labels(BATCH, 4))
    found = space().gradients(wide.outputs, wide.x, seen.y).detach()
    for i, net in enumerate(nets):
        torch.testing.assert_close(found[i], net.weight.detach()[:2].sum(0).expand(BATCH, INPUTS), rtol=1e-12, atol=0)


def test_a_share_of_the_batch_sees_only_its_rows():
    nets, (x, y) = crowd(), examples()
    changed = x.clone()
    changed[3:] += 5.0  # 0.4 of seven examples are three
    some = space(batch_fraction=0.4)
    interaction, gradients = repulsion(some, present(nets, x, y))
    again, same = repulsion(some, present(nets, changed, y))
    first, expected = repulsion(space(), present(nets, x[:3], y[:3]))
    assert interaction.cotangents.shape == (MEMBERS, 3, INPUTS)
    for name, gradient in gradients.items():
        assert torch.equal(gradient, same[name])
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-13)
    assert torch.equal(interaction.log_density, again.log_density)
    torch.testing.assert_close(interaction.log_density, first.log_density, rtol=0, atol=1e-13)
