"""Training on the squared error when tangent kernels stay what they were: predictions in closed form.

Members share parameters w and have their own u. All see the same n examples, member a has the loss L_a =
sum over examples (f_a - y)² / 2n, and parameters move by

    dw = - mu_w gamma / M  sum over members dL_a/dw,      du_a = - mu_u dL_a/du_a

In the space of outputs the kernel of members a and b is mu_w gamma / M <df_a/dw, df_b/dw>, plus mu_u <df_a/du_a,
df_a/du_a> if a is b. Exchangeable members (infinite width) have two modes, their mean and their differences from it.
"""

import math
from dataclasses import dataclass

import torch
from kernel_matrices import Descent, block_matrix
from torch import Tensor

from murmuration.studies.infinite_width import Kernels
from murmuration.studies.tangent_kernels import MemberKernels
from murmuration.system.errors import Misuse


@dataclass(frozen=True)
class Predicted:
    """At each of k inputs: mean and variance of the ensemble's mean, and variance of a member about it, each (k,)."""

    mean: Tensor
    variance: Tensor
    spread: Tensor


def predict_mse(
    train: Kernels, cross: Kernels, start_train: Tensor, start_test: Tensor, targets: Tensor, descent: Descent
) -> Tensor:
    """Outputs (M, k) of exchangeable members after training, from their outputs (M, n) and (M, k) before.

    `train` are the kernels of the n training inputs, `cross` those of the k inputs with them, `targets` (n,). With
    R = k(x, X) K^-1 (I - exp(-K t / n)) of each mode, the mean loses R (mean - y) and a difference R difference; in
    discrete time the exponential is (I - K / n) to the power of the steps.
    """
    check_starts(start_train, start_test, targets)
    members = len(start_train)
    mean_train, apart_train = modes(start_train)
    mean_test, apart_test = modes(start_test)
    mean_answer, apart_answer = answers(train, cross, members, descent)
    return mean_test - mean_answer @ (mean_train - targets) + apart_test - apart_train @ apart_answer.mT


def predict_blocks(
    train: MemberKernels,
    cross: MemberKernels,
    start_train: Tensor,
    start_test: Tensor,
    targets: Tensor,
    descent: Descent,
) -> Tensor:
    """Outputs (M, k) after training of members that need not be exchangeable: a network's own tangent kernels.

    `train` are kernels of the n training inputs, `cross` of the k inputs with them; outputs before are (M, n), (M, k).
    """
    check_starts(start_train, start_test, targets)
    inner = response(block_matrix(train, descent), descent, len(targets))
    residual = (start_train - targets).flatten()
    return start_test - (block_matrix(cross, descent) @ (inner @ residual)).view_as(start_test)


def ensemble_law(
    train: Kernels, cross: Kernels, test: Kernels, targets: Tensor, *, members: int, descent: Descent
) -> Predicted:
    """Mean and variances over initialisations at k inputs, after training on n targets (n,).

    The mean of members starts with covariance S_m = (S_d + (M - 1) S_o) / M, a difference with (1 - 1/M)(S_d - S_o),
    independent of each other; each is carried along by its mode: S(x,x) - 2 R S(X,x) + R S(X,X) R'.
    """
    mean_answer, apart_answer = answers(train, cross, members, descent)
    starts = [start_covariances(each, members) for each in (train, cross, test)]
    variance, spread = (
        carried(answer, *(start[mode] for start in starts)) for mode, answer in enumerate((mean_answer, apart_answer))
    )
    return Predicted(mean_answer @ targets, variance, spread)


def modes(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over members (n,) of outputs (M, n), and members' differences from it (M, n).

    Squared errors split: mean over members of (f - y)² = (mean - y)² + mean over members of difference²
    (Krogh and Vedelsby 1995).
    """
    mean = outputs.mean(0)
    return mean, outputs - mean


def mode_kernels(kernels: Kernels, members: int, descent: Descent) -> tuple[Tensor, Tensor]:
    """The kernels (n1, n2) by which the mean and the differences learn.

    mu_w gamma / M (T_d + (M - 1) T_o) + mu_u Psi and mu_w gamma / M (T_d - T_o) + mu_u Psi.
    """
    share = descent.shared_rate * descent.gamma / members
    own = descent.own_rate * kernels.individual
    together = kernels.tangent_same + (members - 1) * kernels.tangent_other
    return share * together + own, share * (kernels.tangent_same - kernels.tangent_other) + own


def stable_step(train: Kernels, members: int, descent: Descent) -> float:
    """By how much both rates may be multiplied before discrete steps diverge: 2 n / the largest eigenvalue."""
    return min(stable(kernel, len(kernel)) for kernel in mode_kernels(train, members, descent))


def stable_step_of_blocks(train: MemberKernels, descent: Descent) -> float:
    """The same bound for members that need not be exchangeable."""
    return stable(block_matrix(train, descent), train.individual.shape[1])


def stable(kernel: Tensor, examples: int) -> float:
    top = torch.linalg.eigvalsh((kernel + kernel.mT) / 2)[-1].item()
    return 2 * examples / top if top > 0 else math.inf


def answers(train: Kernels, cross: Kernels, members: int, descent: Descent) -> tuple[Tensor, Tensor]:
    """For the mean and for the differences: the matrix (k, n) that takes start minus target to what is taken away."""
    learners, readers = mode_kernels(train, members, descent), mode_kernels(cross, members, descent)
    mean, apart = (
        reader @ response(learner, descent, len(learner)) for reader, learner in zip(readers, learners, strict=True)
    )
    return mean, apart


def response(kernel: Tensor, descent: Descent, examples: int) -> Tensor:
    """K^-1 (I - exp(-K t / n)), or with (I - K / n)^t, of a symmetric kernel K that may be singular."""
    values, vectors = torch.linalg.eigh((kernel + kernel.mT) / 2)
    return (vectors * learnt(values, descent, examples)) @ vectors.mT


def learnt(values: Tensor, descent: Descent, examples: int) -> Tensor:
    """(1 - exp(-value t / n)) / value of every value, or with (1 - value / n)^t; t / n where the value is zero."""
    rates = values / examples
    if descent.discrete:
        slow = rates.abs() < 0.5  # where the power would lose digits
        gone = torch.where(
            slow,
            -torch.expm1(descent.time * torch.log1p(-torch.where(slow, rates, 0))),
            1 - (1 - rates) ** int(descent.time),
        )
    else:
        gone = -torch.expm1(-rates * descent.time)
    null = values == 0
    return torch.where(null, descent.time / examples, gone / torch.where(null, 1, values))


def start_covariances(kernels: Kernels, members: int) -> tuple[Tensor, Tensor]:
    """Covariances over initialisations of the members' mean and of one difference from it."""
    same, other = kernels.covariance_same, kernels.covariance_other
    return (same + (members - 1) * other) / members, (1 - 1 / members) * (same - other)


def carried(answer: Tensor, train: Tensor, cross: Tensor, test: Tensor) -> Tensor:
    """Variances (k,) of start(x) - R start(X) from the covariances of the starts, R (k, n)."""
    return test.diagonal() - 2 * (answer * cross).sum(1) + ((answer @ train) * answer).sum(1)


def check_starts(start_train: Tensor, start_test: Tensor, targets: Tensor) -> None:
    fits = start_train.ndim == start_test.ndim == 2 and len(start_train) == len(start_test)
    if not fits or targets.shape != start_train.shape[1:]:
        shapes = [tuple(each.shape) for each in (start_train, start_test, targets)]
        raise Misuse(f"outputs of shapes {shapes[0]} and {shapes[1]}, targets {shapes[2]}: give (M, n), (M, k), (n,)")
