"""Input gradients to the printed digits: on the sphere and in a metric, by log probabilities, by finite differences."""

import pytest
import torch
from space_inputs import labels, networks, present, randn, repulsion
from test_estimators import GOLDEN, NAMES, SAME, WEIGHTED, doubles
from test_input_gradients import (
    BATCH,
    CLASSES,
    INPUTS,
    MEMBERS,
    SLOPES,
    crowd,
    examples,
    reverse_over_forward,
    space,
)
from torch import Tensor, nn

from murmuration.coupling.estimators import ESTIMATORS
from murmuration.coupling.input_gradients import normalise
from murmuration.coupling.lengthscales import Metric


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
