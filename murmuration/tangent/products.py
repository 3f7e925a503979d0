"""Inner products of derivatives by kernels, from what kernels met and the derivatives by what they made.

The derivative of one output by a kernel is the sum over positions p of left_p right_p^T, in each group of channels: of
a dense layer left is the derivative by what it made and right what it met, of a convolution right is the patch it
met; a transposed convolution has them exchanged. The inner product of two derivatives is then

    sum over p, q of <left_p, left'_q> <right_p, right'_q>

which never makes a derivative: for a dense layer the product, entry by entry, of two small Gram matrices. Where
positions are many it is cheaper to make the derivatives of some channels at a time, and to forget them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.tangent.finite import pairs
from murmuration.tangent.recording import Use, Window

BUDGET = 1 << 22  # numbers that are held for a moment


@dataclass(frozen=True)
class Slope:
    """Derivatives by what a kernel made in one use, (n k, ...): `each` = k rows for every one of n examples."""

    use: Use
    by_made: Tensor
    each: int = 1

    def sides(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Left (r, P, G, high) and right (r, P, G, wide) of some rows, r of them."""
        by_made = self.by_made[rows]
        start, stop, _ = rows.indices(len(self.by_made))
        met = self.use.met[rows] if self.each == 1 else self.use.met[torch.arange(start, stop) // self.each]
        window = self.use.window
        if window is None:
            left, right = (side.reshape(len(side), -1, 1, side.shape[-1]) for side in (by_made, met))
            return left, right
        still, moved = (met, by_made) if window.transposed else (by_made, met)
        left = still.flatten(2).unflatten(1, (window.groups, -1)).permute(0, 3, 1, 2)
        return left, patches(moved, window, tuple(still.shape[2:]))


def patches(x: Tensor, window: Window, count: tuple[int, ...]) -> Tensor:
    """What a window sees at its first `count` places on each axis of x (n, C, *axes): (n, P, G, C / G * size)."""
    axes = len(count)
    seen = F.pad(x, [zeros for pair in reversed(window.padding) for zeros in pair])
    for axis, places in enumerate(count):
        reach = window.dilation[axis] * (window.size[axis] - 1) + 1
        seen = seen.unfold(2 + axis, reach, window.stride[axis]).narrow(2 + axis, 0, places)
        seen = seen[..., :: window.dilation[axis]]
    seen = seen.unflatten(1, (window.groups, -1))  # (n, G, C / G, *count, *size)
    order = (0, *range(3, 3 + axes), 1, 2, *range(3 + axes, 3 + 2 * axes))
    return seen.permute(order).flatten(1, axes).flatten(3)


def kernel_products(slopes: Sequence[Sequence[Slope]], first: slice, second: slice) -> Tensor:
    """Inner products (m, n1, m, n2) of derivatives by one kernel: a list of uses for each of m members.

    `first` and `second` are the rows that meet, of all that the slopes hold.
    """
    left, right = joined(slopes[0], slice(0, 1))
    positions, high, wide = left.shape[1], left.shape[3], right.shape[3]
    cheap = positions**2 * (high + wide) < high * wide
    return by_positions(slopes, first, second) if cheap else by_channels(slopes, first, second)


def joined(uses: Sequence[Slope], rows: slice) -> tuple[Tensor, Tensor]:
    """Left and right of some rows, with the positions of all uses side by side."""
    lefts, rights = zip(*(slope.sides(rows) for slope in uses), strict=True)
    return (lefts[0], rights[0]) if len(uses) == 1 else (torch.cat(lefts, 1), torch.cat(rights, 1))


def by_positions(slopes: Sequence[Sequence[Slope]], first: slice, second: slice) -> Tensor:
    """Inner products (m, n1, m, n2) over pairs of positions, some rows at a time."""
    sides = [torch.stack(side) for side in zip(*(joined(uses, slice(None)) for uses in slopes), strict=True)]
    ours, theirs = ([side[:, rows] for side in sides] for rows in (first, second))
    members, rows, positions, groups, _ = theirs[0].shape
    size = max(1, BUDGET // (groups * (members * positions) ** 2 * rows))
    parts = zip(*(side.split(size, 1) for side in ours), strict=True)
    return torch.cat([positions_product(part, theirs) for part in parts], 1)


def positions_product(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """Sums (m, n1, m, n2) over groups and pairs of positions, of both sides' inner products multiplied."""
    members, mine, positions = ours[0].shape[:3]
    rows, others = theirs[0].shape[1:3]
    left, right = (
        a.flatten(0, 2).movedim(1, 0) @ b.flatten(0, 2).movedim(1, 0).mT for a, b in zip(ours, theirs, strict=True)
    )
    return left.mul_(right).reshape(-1, members, mine, positions, members, rows, others).sum((0, 3, 6))


def by_channels(slopes: Sequence[Sequence[Slope]], first: slice, second: slice) -> Tensor:
    """Inner products (m, n1, m, n2) of derivatives that are made for some channels at a time."""
    left, right = joined(slopes[0], slice(0, 1))
    rows = len(slopes[0][0].by_made)
    size = max(1, BUDGET // (len(slopes) * rows * right[0, 0].numel()))
    total = left.new_zeros(())
    for start in range(0, left.shape[3], size):
        channels = slice(start, start + size)
        made = torch.stack([derivatives(uses, channels) for uses in slopes])  # (m, n, F)
        total = total + pairs(made[:, first], made[:, second])
    return total


def derivatives(uses: Sequence[Slope], channels: slice) -> Tensor:
    """Derivatives (n, F) by some left channels of a kernel, some rows at a time: patches are large."""
    rows = len(uses[0].by_made)
    left, right = joined(uses, slice(0, 1))
    size = max(1, BUDGET // (left[0].numel() + right[0].numel()))
    made = []
    for start in range(0, rows, size):
        left, right = joined(uses, slice(start, start + size))
        made.append(torch.einsum("npgl,npgr->nglr", left[..., channels], right).flatten(1))
    return torch.cat(made)
