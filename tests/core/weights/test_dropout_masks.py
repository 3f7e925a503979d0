import torch
import torch.nn.functional as F

from murmuration.core.weights.dropout_masks import apply_dropout, keep_masks
from murmuration.system.streams import Noise


def source(seed: int) -> Noise:
    return Noise(seed, 0)


def keep_mask(shape: list[int], keep: float, noise: Noise, like: torch.Tensor) -> torch.Tensor:
    return keep_masks(shape, keep, [noise], like.unsqueeze(0)).squeeze(0)


def test_the_kept_fraction_and_the_mean_are_those_of_dropout():
    mask = keep_mask([1000, 400], 0.9, source(0), torch.empty(0))
    kept = (mask > 0).double().mean()
    bound = 4 * (0.9 * 0.1 / mask.numel()) ** 0.5  # four standard errors
    assert abs(kept - 0.9) < bound
    assert abs(mask.double().mean() - 1.0) < bound / 0.9
    assert set(mask.unique().tolist()) == {0.0, mask.max().item()}


def test_neighbours_are_uncorrelated():
    mask = (keep_mask([1 << 20], 0.5, source(1), torch.empty(0, dtype=torch.float64)) > 0).double()
    for lag in (1, 2, 3, 4):
        together = (mask[lag:] * mask[:-lag]).mean()
        assert abs(together - 0.25) < 4 * (0.25 * 0.75 / len(mask)) ** 0.5


def test_extremes_keep_all_or_nothing():
    like = torch.empty(0)
    assert torch.equal(keep_mask([50], 1.0, source(0), like), torch.ones(50))
    assert torch.equal(keep_mask([50], 0.0, source(0), like), torch.zeros(50))


def test_memory_layout_does_not_change_the_mask():
    x = torch.ones(2, 3, 4, 4)
    plain = apply_dropout(F.dropout, [source(3)], {"input": x, "p": 0.5})
    last = apply_dropout(F.dropout, [source(3)], {"input": x.contiguous(memory_format=torch.channels_last), "p": 0.5})
    assert torch.equal(plain, last)


def test_whole_channels_fall_together():
    dropped = apply_dropout(F.dropout2d, [source(0)], {"input": torch.ones(8, 16, 3, 3), "p": 0.5})
    by_channel = dropped.flatten(2)
    assert torch.equal(by_channel.amin(2), by_channel.amax(2))
    assert 0 < (by_channel[..., 0] == 0).sum() < 8 * 16


def test_evaluation_leaves_the_input_alone():
    x = torch.randn(4, 5)
    assert apply_dropout(F.dropout, [source(0)], {"input": x, "p": 0.5, "training": False}) is x


def test_members_draw_their_own_masks_wherever_they_run():
    x = torch.ones(3, 6, 7)
    together = apply_dropout(F.dropout, [source(i) for i in range(3)], {"input": x, "p": 0.4}, stacked=True)
    for member in range(3):
        assert torch.equal(together[member], apply_dropout(F.dropout, [source(member)], {"input": x[member], "p": 0.4}))
