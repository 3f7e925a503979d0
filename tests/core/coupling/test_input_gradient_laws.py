"""Input gradients to the printed digits: on the sphere and in a metric, by log probabilities, by finite differences."""

import pytest
import torch
from space_inputs import labels, networks, present, randn, repulsion
from test_estimators import GOLDEN, NAMES, SAME, WEIGHTED, doubles
from test_input_gradients import BATCH, CLASSES, INPUTS, MEMBERS, SLOPES, crowd, examples, reverse_over_forward, space
from torch import Tensor, nn

from murmuration.core.coupling.estimators import ESTIMATORS
from murmuration.core.coupling.input_gradients import Metric, normalise, rounding


def felt_by(g: Tensor, bandwidth: str, metric: Metric) -> tuple[Tensor, Tensor]:
    """r (M,) and its gradient (M, B, D) by input gradients g, through the library's sphere and metric."""
    g = g.detach().requires_grad_()
    t = metric(normalise(g))
    interaction = ESTIMATORS["kde"](t.detach(), bandwidth)
    return interaction.log_density, torch.autograd.grad(t, g, interaction.cotangents)[0]


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
def test_golden_tensor_through_the_sphere_of_the_space(bandwidth: str):
    diagonal = Metric(torch.eye(3, dtype=torch.float64), doubles([2.0, 1.0, 0.5]), 0.0)  # weights 4, 1, 1/4
    for metric, (r, gradient) in ((Metric(), SAME), (diagonal, WEIGHTED[bandwidth])):
        found_r, found = felt_by(GOLDEN, bandwidth, metric)
        torch.testing.assert_close(found_r, doubles(r), rtol=0, atol=6e-11)
        torch.testing.assert_close(found[0], doubles(gradient), rtol=0, atol=6e-11)


@pytest.mark.parametrize("bandwidth", NAMES)
def test_the_length_of_every_single_gradient_cancels(bandwidth: str):
    g, lengths = randn(4, 3, 5), randn(4, 3, 1, seed=3).exp()
    torch.testing.assert_close(normalise(lengths * g), normalise(g), rtol=0, atol=5e-16)
    r, gradient = felt_by(g, bandwidth, Metric())
    scaled_r, scaled = felt_by(lengths * g, bandwidth, Metric())
    torch.testing.assert_close(scaled_r, r, rtol=0, atol=1e-14)
    torch.testing.assert_close(lengths * scaled, gradient, rtol=0, atol=1e-14)
    torch.testing.assert_close((gradient * g).sum(-1), torch.zeros(4, 3, dtype=torch.float64), rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-36, 1e-20, 1e-7, 1e7, 1e30])
def test_the_unit_of_a_members_gradients_cancels_in_every_precision(dtype: torch.dtype, factor: float):
    """Not the squares of lengths (1e-72 and 1e60 here) but the lengths themselves must be in range."""
    g = randn(4, 3, 5).to(dtype)
    cancelled = 8 * torch.finfo(dtype).eps
    scaled_g = torch.cat([g[:1] * factor, g[1:]])
    torch.testing.assert_close(normalise(scaled_g), normalise(g), rtol=0, atol=cancelled)
    r, gradient = felt_by(g, "all", Metric())
    scaled_r, scaled = felt_by(scaled_g, "all", Metric())
    torch.testing.assert_close(scaled_r, r, rtol=0, atol=cancelled)
    size = float(gradient.abs().max())
    torch.testing.assert_close(factor * scaled[0], gradient[0], rtol=0, atol=cancelled * size)
    torch.testing.assert_close(scaled[1:], gradient[1:], rtol=0, atol=cancelled * size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e20])
def test_gradients_below_a_rounding_of_the_usual_slope_have_no_direction(dtype: torch.dtype, factor: float):
    """Whatever the unit of the outputs: the same examples, and no derivative."""
    x, eps = randn(1, 4, 5).to(dtype), torch.finfo(dtype).eps
    outputs = factor * x[..., :2]  # slopes of one unit
    g = factor * randn(1, 4, 5, seed=2).to(dtype)
    g[0, 1] *= eps
    g[0, 2] = 0
    g[0, 3] *= 100 * eps
    g.requires_grad_()
    found = normalise(g, rounding(outputs, x))
    lengths = found.detach().norm(dim=-1)[0]
    torch.testing.assert_close(lengths, torch.tensor([1, 0, 0, 1], dtype=dtype), rtol=1e-6, atol=0)
    slopes = torch.autograd.grad(found.sum(), g)[0]
    assert torch.equal(slopes[0, 1:3], torch.zeros_like(slopes[0, 1:3]))
    assert slopes.isfinite().all()


def test_a_tiny_network_is_repelled_as_any_other_in_single_precision():
    """Outputs of 1e-20: the whole repulsion is that of outputs of one, by weights 1e-20 times as long."""
    nets, (x, y) = [net.float() for net in crowd()], examples()
    interaction, gradients = repulsion(space(), present(nets, x.float(), y))
    for net in nets:
        net[4].weight.data *= 1e-20
    again, tiny = repulsion(space(), present(nets, x.float(), y))
    torch.testing.assert_close(again.log_density, interaction.log_density, rtol=0, atol=1e-5)
    size = float(gradients["0.weight"].abs().max())
    assert size > 1e-3
    torch.testing.assert_close(tiny["0.weight"], gradients["0.weight"], rtol=0, atol=1e-4 * size)


@pytest.mark.parametrize("margin", [25.0, 60.0])
def test_log_probabilities_of_certain_examples_have_no_direction_in_single_precision(margin: float):
    """1 - p_y is 1e-11 or 1e-26, its rounding 6e-8: the direction of that difference is noise."""
    nets = networks(lambda: nn.Linear(INPUTS, CLASSES), MEMBERS)
    for net in nets:
        net.float().bias.data = torch.tensor([margin, *[0.0] * (CLASSES - 1)])
        net.weight.data *= 0.01
    x = randn(BATCH, INPUTS).float()
    found = space(of="log-prob").features(present(nets, x, torch.zeros(BATCH, dtype=torch.long)))
    assert torch.equal(found, torch.zeros_like(found))


@pytest.mark.parametrize("bandwidth", ["code", "all", "off"])
def test_the_order_of_the_batch_does_not_count(bandwidth: str):
    nets, (x, y) = crowd(), examples()
    order = torch.tensor([3, 6, 0, 5, 1, 4, 2])
    interaction, gradients = repulsion(space(bandwidth=bandwidth), present(nets, x, y))
    again, shuffled = repulsion(space(bandwidth=bandwidth), present(nets, x[order], y[order]))
    torch.testing.assert_close(again.log_density, interaction.log_density, rtol=0, atol=1e-13)
    for name, gradient in gradients.items():
        torch.testing.assert_close(shuffled[name], gradient, rtol=0, atol=1e-13, msg=name)


@pytest.mark.parametrize("label", [0, 1])
def test_two_classes_show_the_difference_of_their_rows_through_log_probabilities(label: int):
    """g = (1 - p_y) (w_y - w_other): the factor depends on x, the direction does not."""
    nets = networks(lambda: nn.Linear(INPUTS, 2), MEMBERS)
    x = 2 * randn(BATCH, INPUTS)
    found = space(of="log-prob").features(present(nets, x, torch.full((BATCH,), label))).detach()
    for i, net in enumerate(nets):
        difference = net.weight.detach()[label] - net.weight.detach()[1 - label]
        expected = (difference / difference.norm()).expand(BATCH, INPUTS)
        torch.testing.assert_close(found[i], expected, rtol=0, atol=1e-12)


def test_rows_of_absent_classes_are_moved_through_log_probabilities():
    nets, x = networks(lambda: nn.Linear(INPUTS, CLASSES), MEMBERS), randn(BATCH, INPUTS)
    _, gradients = repulsion(space(of="log-prob"), present(nets, x, labels(BATCH, 2)))  # never class 2
    assert gradients["weight"][:, 2].abs().amax(1).min() > 1e-4  # no rounding: every member's row


@pytest.mark.parametrize("activation", SLOPES)
def test_reverse_over_forward_mode_is_the_slope_of_a_directional_derivative(activation: type[nn.Module]):
    """Finite differences of c . grad_x f_y by every weight and bias, c held."""
    net, (x, y) = crowd(activation)[0], examples()
    c, label = randn(INPUTS, seed=9), int(y[0])

    def along() -> float:
        here = x[0].clone().requires_grad_()
        return float(torch.autograd.grad(net(here)[label], here)[0] @ c)

    with torch.no_grad():
        found = reverse_over_forward(net, x[0], label, c)
    for name, weight in net.named_parameters():
        for place in range(weight.numel()):
            values, kept = [], weight.data.flatten()[place].item()
            for bump in (1e-6, -1e-6):
                weight.data.view(-1)[place] = kept + bump
                values.append(along())
            weight.data.view(-1)[place] = kept
            assert (values[0] - values[1]) / 2e-6 == pytest.approx(found[name].flatten()[place].item(), abs=1e-9), name


def test_no_bias_of_a_relu_network_at_all_is_moved():
    _, gradients = repulsion(space(), present(crowd(nn.ReLU), *examples()))
    biases = [name for name in gradients if name.endswith("bias")]
    assert biases == ["0.bias", "2.bias", "4.bias"]
    assert all(torch.equal(gradients[name], torch.zeros_like(gradients[name])) for name in biases)
