"""Dropout of every kind from a member's own noise stream.

Torch's dropout draws one floating-point number per element from the global generator; on a CPU that is most of the time
of a small convolutional network. Here sixteen random bits decide an element, four elements to a 64-bit draw. The rate
is then a multiple of 2^-16, and kept values are divided by that exact rate, so dropout stays unbiased.

Dropout functions, attention with dropout, recurrent layers with dropout between them and random numbers that a network
draws by itself (stochastic depth) all use that stream: the same seed gives the same numbers on every engine. In
prediction one mask serves all examples, so that a draw is one function of its inputs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from murmuration.system.devices import at_least_float32
from murmuration.system.streams import Noise

STEPS = 1 << 16  # of the dropout rate
CHANNELS = -1  # one decision covers a whole channel, whatever the number of axes behind it
# Trailing axes that one decision covers: the dropoutNd functions drop whole channels.
COVERED: dict[Callable, int] = {F.dropout: 0, F.dropout1d: 1, F.dropout2d: 2, F.dropout3d: 3}
COVERED |= {torch.dropout: 0, torch.dropout_: 0, torch.feature_dropout: CHANNELS, torch.feature_dropout_: CHANNELS}
ALPHA: dict[Callable, int] = {F.alpha_dropout: 0, torch.alpha_dropout: 0, torch.alpha_dropout_: 0}
ALPHA |= dict.fromkeys((F.feature_alpha_dropout, torch.feature_alpha_dropout, torch.feature_alpha_dropout_), CHANNELS)
COVERED |= ALPHA
SELU_LOW = -1.7580993408473766  # the value that SELU tends to at -infinity, which alpha dropout puts in
RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
LIKES = (torch.rand_like, torch.randn_like)
SIZES = (torch.rand, torch.randn)
COINS = (torch.bernoulli, Tensor.bernoulli)
RANDOM = frozenset((*LIKES, *SIZES, *COINS, Tensor.bernoulli_, Tensor.uniform_, Tensor.normal_))


def apply_dropout(func: Callable, noise: Sequence[Noise], arguments: dict[str, Any], stacked: bool = False) -> Tensor:
    """Return the input with each element (or channel) zeroed with probability p and the others scaled up.

    `arguments` are those of the dropout function; with `stacked` the input has a leading member axis, one entry per
    stream of `noise`. The next axis is that of the examples, which have a mask each or, in prediction, one for all.
    Alpha dropout inserts the lowest value of SELU instead of zero, and preserves mean and variance.
    """
    x, rate = arguments["input"], arguments.get("p", 0.5)
    if not arguments.get("training", True) or rate == 0:
        return x
    shape = list(x.shape[1:] if stacked else x.shape)
    covered = COVERED[func] if COVERED[func] != CHANNELS else len(shape) - 2
    if not noise[0].per_example:
        shape[0] = 1
    if covered:
        shape[-covered:] = [1] * covered
    exact = at_least_float32(x)  # the reciprocal of the rate is not rounded to half precision
    like = exact if stacked else exact.unsqueeze(0)
    mask = keep_masks(shape, 1 - rate, noise if stacked else noise[:1], like)
    mask = mask if stacked else mask.squeeze(0)
    if func not in ALPHA:
        return (exact * mask).to(x.dtype)
    keep = round((1 - rate) * STEPS) / STEPS
    scale = (keep + SELU_LOW**2 * keep * (1 - keep)) ** -0.5 if keep else 0.0
    ones = mask * keep  # 1 or 0
    return (exact * (scale * ones) + scale * SELU_LOW * ((1 - ones) - (1 - keep))).to(x.dtype)


def dropout_arguments(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a dropout function, by name."""
    arguments = {**dict(zip(("input", "p", "training", "inplace"), args, strict=False)), **kwargs}
    return {"training" if name == "train" else name: value for name, value in arguments.items()}


def dropout_rate(func: Callable, args: tuple, kwargs: dict[str, Any]) -> float:
    """Return the dropout rate of an operator, active or not; 0 without dropout, or if it is below half of 2^-16."""
    if func in COVERED:
        rate = dropout_arguments(args, kwargs).get("p", 0.5)
    elif func is F.scaled_dot_product_attention:
        rate = attention_arguments(args, kwargs).get("dropout_p", 0.0)
    elif func is F.multi_head_attention_forward:
        rate = kwargs.get("dropout_p", args[10] if len(args) > 10 else 0.0)
    elif func in RECURRENT:
        _, _, (_, layers, rate, *_) = recurrent_arguments(args)
        rate = rate if layers > 1 else 0.0
    else:
        return 0.0
    return rate if round(rate * STEPS) else 0.0


def keep_masks(shape: list[int], keep: float, noise: Sequence[Noise], like: Tensor) -> Tensor:
    """Draw masks (m, *shape): 1/rate with probability `rate`, else 0; `rate` is `keep` rounded to a multiple of 2^-16.

    Images (B, C, H, W) are drawn in the order B, H, W, C, the layout convolutions run in: the order is part of the
    definition, so that engines with different memory layouts draw the same mask. `like` gives dtype and device, and
    for other inputs of its shape the memory layout: masks of another one would slow down every product with them.
    """
    count = round(keep * STEPS)
    if count == 0:
        return like.new_zeros(len(noise), *shape)
    size = shape if len(shape) != 4 else [shape[0], shape[2], shape[3], shape[1]]
    draws = [stream.bits(math.prod(size), like.device) for stream in noise]
    bits = (torch.stack(draws) if len(draws) > 1 else draws[0]).view(len(noise), *size)
    alike = like.shape == bits.shape and len(shape) != 4
    mask = torch.empty_like(like) if alike else like.new_empty(bits.shape)
    torch.le(bits, count - STEPS // 2 - 1, out=mask)
    mask.mul_(STEPS / count)
    return mask.permute(0, 1, 4, 2, 3) if len(shape) == 4 else mask


def attention_arguments(args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `scaled_dot_product_attention`, by name."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def attend(arguments: dict[str, Any], drop: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute `scaled_dot_product_attention` in plain, twice differentiable operators; `drop` acts on its weights."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    scale, mask = arguments.get("scale"), arguments.get("attn_mask")
    if arguments.get("enable_gqa"):
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)  # (..., L, S)
    if arguments.get("is_causal"):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return drop(scores.softmax(-1)) @ value


def recurrent_arguments(args: tuple) -> tuple[tuple, Any, tuple]:
    """Return the inputs (with batch sizes, if packed), the states and the other arguments of a recurrent layer.

    The last are (weights, layers, dropout, train, bidirectional, has_biases, batch_first), batch_first None if packed.
    """
    packed = isinstance(args[3], list | tuple)
    inputs, (states, weights, biased, layers, rate, train, both, *first) = args[: 1 + packed], args[1 + packed :]
    return inputs, states, (weights, layers, rate, train, both, biased, first[0] if first else None)


def recurrent_layers(func: Callable, args: tuple, drop: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Run a recurrent network layer by layer; `drop` acts on the outputs between layers, examples first."""
    (x, *sizes), states, (weights, layers, _, train, both, biased, batch_first) = recurrent_arguments(args)
    directions, per_layer = 1 + both, len(weights) // layers
    ends = []
    for layer in range(layers):
        if layer:
            x = drop(x) if batch_first is not False else drop(x.transpose(0, 1)).transpose(0, 1)
        rows = slice(layer * directions, (layer + 1) * directions)
        start = tuple(s[rows] for s in states) if isinstance(states, list | tuple) else states[rows]
        layer_weights = list(weights[layer * per_layer : (layer + 1) * per_layer])
        flags = (biased, 1, 0.0, train, both, *(() if batch_first is None else (batch_first,)))
        x, *end = func(x, *sizes, start, layer_weights, *flags)
        ends.append(end)
    return x, *(torch.cat(parts) for parts in zip(*ends, strict=True))


def draw_random(func: Callable, args: tuple, kwargs: dict[str, Any], noise: Noise, batch: int) -> Any:
    """Return the result of a random function, from the member's stream.

    Without `per_example` a tensor whose first axis is that of the examples has the same numbers for all of them.
    """

    def shorter(shape: Sequence[int]) -> list[int]:
        return [1, *shape[1:]] if shape and shape[0] == batch and not noise.per_example else list(shape)

    def source(device: Any) -> torch.Generator:  # a stream of its own: what follows does not depend on the size
        seed = int(noise.bits(4, torch.device("cpu")).view(torch.int64)) & (2**63 - 1)
        return torch.Generator(device).manual_seed(seed)

    if kwargs.get("generator") is not None:
        return func(*args, **kwargs)
    if func in SIZES:
        size = kwargs.pop("size", None) or (args[0] if isinstance(args[0], list | tuple) else args)
        device = kwargs.get("device") or torch.get_default_device()
        return func(shorter(size), generator=source(device), **kwargs).expand(*size).clone()
    like, after = args[0] if args else kwargs["input"], args[1:]
    generator = source(like.device)
    target = like.detach().new_empty(shorter(like.shape))
    if func in COINS or (func is Tensor.bernoulli_ and any(isinstance(p, Tensor) for p in (*after, kwargs.get("p")))):
        chance = after[0] if after else kwargs.get("p", like)
        heads = torch.rand(target.shape, generator=generator, device=like.device) < chance
        return like.copy_(heads) if func is Tensor.bernoulli_ else heads.to(like.dtype)
    if func in LIKES:
        values = (Tensor.uniform_ if func is torch.rand_like else Tensor.normal_)(target, generator=generator)
        return values.to(kwargs.get("dtype") or like.dtype).expand(like.shape).clone()
    return like.copy_(func(target, *after, generator=generator, **kwargs))
