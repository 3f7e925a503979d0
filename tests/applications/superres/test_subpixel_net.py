"""The network: its size, the law of its pixels, how far it sees, and what it adds to bicubic."""

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from superres_factories import grain

from murmuration.applications.subpixel import REACH, Subpixel, details, enlarged
from murmuration.models.nets import build_net
from murmuration.system.errors import Misuse

BOTH = pytest.mark.parametrize("name", ["subpixel", "subpixel-plain"])


@BOTH
def test_three_times_as_large_it_has_59657_parameters(name: str):
    net = build_net(name, (1, 85, 85), 255 * 255)
    assert sum(p.numel() for p in net.parameters()) == 59_657
    assert net(grain(2, 1, 85, 85)).shape == (2, 255 * 255)


def test_pixels_follow_the_index_law():
    """out[r h + i, r w + j] = in[r i + j, h, w], by a head that lets each channel show its own number and place."""
    r, height, width = 3, 4, 5
    net = Subpixel(r, residual=False)
    channels = torch.arange(r * r * height * width, dtype=torch.float32).view(1, r * r, height, width)
    net.body, net.head = torch.nn.Identity(), torch.nn.Identity()
    out = net(channels).view(r * height, r * width)
    for h, w, i, j in ((0, 0, 0, 0), (3, 4, 2, 1), (1, 2, 0, 2), (2, 3, 1, 0)):
        assert out[r * h + i, r * w + j] == channels[0, r * i + j, h, w]
    by_hand = channels.view(r, r, height, width).permute(2, 0, 3, 1).reshape(r * height, r * width)
    assert torch.equal(out, by_hand)


def silent(net: Subpixel) -> Subpixel:
    for parameter in net.head.parameters():
        torch.nn.init.zeros_(parameter)
    return net


def test_with_a_silent_head_it_is_bicubic_and_plain_is_black():
    x = grain(1, 1, 9, 7)
    assert torch.equal(silent(Subpixel(2))(x), enlarged(x, 2).flatten(1))
    assert not silent(Subpixel(2, residual=False))(x).any()


def test_the_end_has_no_relu():
    torch.manual_seed(0)
    assert (Subpixel(2, residual=False)(grain(1, 1, 12, 12) * 4 - 2) < 0).any()


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_bicubic_is_that_of_pil(scale: int):
    small = grain(1, 1, 11, 8)
    by_pil = Image.fromarray(small[0, 0].numpy()).resize((8 * scale, 11 * scale), Image.Resampling.BICUBIC)
    torch.testing.assert_close(enlarged(small, scale)[0, 0], torch.tensor(list(by_pil.getdata())).view(11 * scale, -1))


def test_brightness_passes_through():
    """f(x + c) = f(x) + c: the network sees details alone; the plain one does not have this."""
    torch.manual_seed(0)
    x = grain(1, 1, 10, 10).double()
    net, plain = Subpixel(2).double(), Subpixel(2, residual=False).double()
    torch.testing.assert_close(net(x + 0.3), net(x) + 0.3)
    assert (plain(x + 0.3) - plain(x) - 0.3).abs().max() > 0.1
    assert details(torch.full((1, 1, 6, 6), 0.7)).abs().max() < 1e-6


@BOTH
def test_outputs_depend_on_pixels_within_reach_alone(name: str):
    torch.manual_seed(0)
    side = 2 * REACH + 3
    net = build_net(name, (1, side, side), 4 * side * side).double()
    x = grain(1, 1, side, side).double().requires_grad_()
    middle = REACH + 1
    net(x).view(2 * side, 2 * side)[2 * middle, 2 * middle].backward()
    seen = x.grad[0, 0].nonzero()
    assert (seen - middle).abs().max() <= REACH
    assert (seen - middle).abs().max() == (REACH if name == "subpixel" else 5)


@pytest.mark.parametrize(("shape", "outputs"), [((3, 8, 8), 256), ((1, 8, 8), 64), ((1, 8, 8), 257), ((1, 8, 8), 1600)])
def test_other_shapes_are_refused(shape, outputs):
    with pytest.raises(Misuse, match=r"the sub-pixel net turns \(1, 8, 8\) into 256, 576 or 1024 pixels"):
        build_net("subpixel", shape, outputs)


def test_it_runs_stacked():
    """Two members under vmap give what they give alone: any engine can run it."""
    from torch.func import functional_call, stack_module_state, vmap

    torch.manual_seed(0)
    nets = [Subpixel(2).double() for _ in range(2)]
    parameters, buffers = stack_module_state(nets)
    x = grain(3, 1, 7, 6).double()
    both = vmap(lambda p, b: functional_call(nets[0], (p, b), (x,)))(parameters, buffers)
    for i, net in enumerate(nets):
        torch.testing.assert_close(both[i], net(x))
    assert F.mse_loss(both[0], both[1]) > 0
