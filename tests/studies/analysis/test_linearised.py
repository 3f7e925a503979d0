import math

import pytest
import torch
from embedded_ensembles import CRITICAL, made
from kernel_matrices import Descent, average_kernels, block_matrix, gaussian, least_eigenvalue
from linearised import (
    ensemble_law,
    learnt,
    mode_kernels,
    modes,
    predict_blocks,
    predict_mse,
    stable_step,
    stable_step_of_blocks,
)
from torch import Tensor

from murmuration.studies.infinite_width import Architecture, Kernels, limit_kernels
from murmuration.studies.tangent_kernels import MemberKernels
from murmuration.system.errors import Misuse

X, Y, TEST = gaussian(5, 3), gaussian(5, seed=1), gaussian(2, 3, seed=2)
COLLECTIVE = made("normal_1_0.5", "normal_1_0.5", 2, scales=CRITICAL)
INDEPENDENT = made("rademacher", "rademacher", 2, scales=CRITICAL)
MASKS = made("bernoulli_0.5", "ones", 2, scales=CRITICAL, train_u=False, train_v=False)
DEGENERATE = made("ones", "ones", 2, scales=CRITICAL)


def kernels(architecture: Architecture) -> tuple[Kernels, Kernels, Kernels]:
    return (
        limit_kernels(architecture, X, X),
        limit_kernels(architecture, TEST, X),
        limit_kernels(architecture, TEST, TEST),
    )


def start(members: int) -> tuple[Tensor, Tensor]:
    return gaussian(members, 5, seed=3), gaussian(members, 2, seed=4)


def blocks(kernel: Kernels, members: int) -> MemberKernels:
    """The exchangeable kernels written out for every pair of members."""
    eye = torch.eye(members, dtype=torch.float64)
    common = torch.einsum("ab,ij->aibj", eye, kernel.tangent_same)
    common = common + torch.einsum("ab,ij->aibj", 1 - eye, kernel.tangent_other)
    return MemberKernels(common, kernel.individual.expand(members, -1, -1))


def generator_of(train: MemberKernels, cross: MemberKernels, descent: Descent) -> Tensor:
    """The matrix of the linear flow of (residuals at n inputs, outputs at k), all members; nothing is inverted."""
    whole, side = block_matrix(train, descent), block_matrix(cross, descent)
    top = torch.cat([whole, whole.new_zeros(len(whole), len(side))], 1)
    return -torch.cat([top, torch.cat([side, side.new_zeros(len(side), len(side))], 1)]) / train.individual.shape[1]


def brute_force(train: MemberKernels, cross: MemberKernels, starts: tuple[Tensor, Tensor], descent: Descent) -> Tensor:
    flow = generator_of(train, cross, descent)
    state = torch.cat([(starts[0] - Y).flatten(), starts[1].flatten()])
    if descent.discrete:
        for _ in range(int(descent.time)):
            state = state + flow @ state
    else:
        state = torch.linalg.matrix_exp(flow * descent.time) @ state
    return state[-starts[1].numel() :].view_as(starts[1])


@pytest.mark.parametrize("architecture", [COLLECTIVE, INDEPENDENT, MASKS, DEGENERATE])
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("members", [1, 4])
def test_two_modes_are_the_whole_block_matrix(architecture: Architecture, discrete: bool, members: int):
    train, cross, _ = kernels(architecture)
    starts = start(members)
    for gamma, time in ((1.0, 7.0), (members, 3.0)):
        descent = Descent(time, gamma, shared_rate=0.3, own_rate=0.2, discrete=discrete)
        expected = brute_force(blocks(train, members), blocks(cross, members), starts, descent)
        torch.testing.assert_close(predict_mse(train, cross, *starts, Y, descent), expected, rtol=0, atol=1e-10)
        by_blocks = predict_blocks(blocks(train, members), blocks(cross, members), *starts, Y, descent)
        torch.testing.assert_close(by_blocks, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("discrete", [False, True])
def test_members_that_are_not_exchangeable(discrete: bool):
    """Kernels of random features: any that are inner products of gradients."""
    shared, own = gaussian(3, 7, 40, seed=5), gaussian(3, 7, 6, seed=6)
    common, individual = torch.einsum("aif,bjf->aibj", shared, shared), torch.einsum("aif,ajf->aij", own, own)
    train = MemberKernels(common[:, :5, :, :5], individual[:, :5, :5])
    cross = MemberKernels(common[:, 5:, :, :5], individual[:, 5:, :5])
    descent = Descent(20, 3.0, 0.01, 0.03, discrete)
    assert least_eigenvalue(block_matrix(train, descent)) >= -1e-10
    got = predict_blocks(train, cross, *start(3), Y, descent)
    torch.testing.assert_close(got, brute_force(train, cross, start(3), descent), rtol=0, atol=1e-10)


def test_one_member_is_the_standard_solution():
    train, cross, _ = kernels(COLLECTIVE)
    (f, g), descent = start(1), Descent(2.5, 1.0, 0.7, 0.4)
    kernel, side = (0.7 * each.tangent_same + 0.4 * each.individual for each in (train, cross))
    decay = torch.linalg.matrix_exp(-kernel * 2.5 / 5)
    expected = g[0] - side @ torch.linalg.solve(kernel, (torch.eye(5).double() - decay) @ (f[0] - Y))
    torch.testing.assert_close(predict_mse(train, cross, f, g, Y, descent)[0], expected, rtol=0, atol=1e-10)
    on_train = predict_mse(train, train, f, f, Y, descent)[0]
    torch.testing.assert_close(on_train, Y + decay @ (f[0] - Y), rtol=0, atol=1e-10)


@pytest.mark.parametrize("discrete", [False, True])
def test_errors_split_into_the_mean_and_the_differences_at_every_time(discrete: bool):
    train, _, _ = kernels(COLLECTIVE)
    f, _ = start(4)
    for time in (0, 1, 10, 100):
        outputs = predict_mse(train, train, f, f, Y, Descent(time, 1.0, 0.1, 0.1, discrete))
        mean, apart = modes(outputs)
        whole = (outputs - Y).square().mean(0)
        torch.testing.assert_close(whole, (mean - Y).square() + apart.square().mean(0), rtol=1e-12, atol=1e-15)
    assert whole.max() < 0.1 * (f - Y).square().mean(0).max()  # and training trains


def test_time_zero_changes_nothing_and_much_time_interpolates():
    train, cross, _ = kernels(COLLECTIVE)
    assert torch.equal(predict_mse(train, cross, *start(3), Y, Descent(0.0, 1.0)), sum(modes(start(3)[1])))
    done = predict_mse(train, train, start(3)[0], start(3)[0], Y, Descent(1e6, 1.0))
    torch.testing.assert_close(done, Y.expand(3, 5), rtol=0, atol=1e-9)


def test_small_steps_are_the_flow():
    train, cross, _ = kernels(COLLECTIVE)
    flow = predict_mse(train, cross, *start(3), Y, Descent(2.0, 1.0))
    errors = [
        (predict_mse(train, cross, *start(3), Y, Descent(2 * n, 1.0, 1 / n, 1 / n, True)) - flow).abs().max().item()
        for n in (100, 1000)
    ]
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)  # first order in the step


def test_a_singular_kernel_leaves_what_it_cannot_see():
    """Twice the same input with two targets: their difference is never learnt."""
    x = X[[0, 0, 1]]
    train = limit_kernels(MASKS, x, x)
    f, y = gaussian(1, 3, seed=7), torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    done = predict_mse(train, train, f, f, y, Descent(1e4, 1.0))[0]
    middle = (f[0, :2] - y[:2]).mean()
    torch.testing.assert_close(done[:2], f[0, :2] - middle, rtol=0, atol=1e-6)


@pytest.mark.parametrize("discrete", [False, True])
def test_slow_directions_keep_their_digits(discrete: bool):
    """(1 - exp(-value t / n)) / value tends to t / n; at 8 a step of n = 4 jumps to the mirror image, 1 - (-1)^t."""
    values = torch.tensor([0.0, 1e-14, 1e-6, 8.0], dtype=torch.float64)
    got = learnt(values, Descent(6, 1.0, discrete=discrete), 4)
    curved = 1.5 - 1e-6 * (15 / 16 if discrete else 9 / 8)  # the second order: t(t-1)/2n² or t²/2n²
    last = 0.0 if discrete else -math.expm1(-12) / 8
    torch.testing.assert_close(got, torch.tensor([1.5, 1.5, curved, last], dtype=torch.float64), rtol=1e-11, atol=0)


def test_independent_members_do_not_notice_each_other():
    train, cross, _ = kernels(INDEPENDENT)
    for discrete in (False, True):
        eight = predict_mse(train, cross, *start(8), Y, Descent(5, 8.0, 0.2, 0.1, discrete))
        for members in (1, 3):
            few = predict_mse(
                train, cross, *(each[:members] for each in start(8)), Y, Descent(5, members, 0.2, 0.1, discrete)
            )
            torch.testing.assert_close(few, eight[:members], rtol=0, atol=1e-12)


def test_a_mean_of_gradients_slows_independent_members_down():
    train, _, _ = kernels(made("rademacher", "rademacher", 2, train_u=False, train_v=False))
    f, _ = start(8)
    slow, quick = (predict_mse(train, train, f, f, Y, Descent(time, gamma)) for time, gamma in ((8.0, 1.0), (1.0, 8.0)))
    torch.testing.assert_close(slow, quick, rtol=0, atol=1e-12)


def test_masks_keep_their_differences_for_a_time_of_the_number_of_members():
    train, _, _ = kernels(MASKS)
    for members in (2, 7, 50):
        _, apart = mode_kernels(train, members, Descent(1.0, 1.0))
        torch.testing.assert_close(members * apart, train.tangent_same - train.tangent_other, rtol=0, atol=1e-12)


def test_a_sum_of_gradients_of_many_collective_members_needs_a_small_step():
    train, _, _ = kernels(MASKS)
    tops = []
    for members in (10_000, 10_001):
        mean, _ = mode_kernels(train, members, Descent(1.0, members))
        tops.append(torch.linalg.eigvalsh(mean)[-1].item())
    assert tops[1] - tops[0] == pytest.approx(torch.linalg.eigvalsh(train.tangent_other)[-1].item(), rel=1e-6)


def test_equal_members_stay_equal():
    train, cross, _ = kernels(DEGENERATE)
    f, g = (each[:1].expand(3, -1) for each in start(3))
    outputs = predict_mse(train, cross, f, g, Y, Descent(3.0, 1.0))
    torch.testing.assert_close(outputs, outputs[:1].expand(3, -1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("members", [1, 4])
def test_the_stable_step_is_where_descent_stops_falling(members: int):
    train, _, _ = kernels(COLLECTIVE)
    f, _ = start(members)
    for gamma in (1.0, members):
        bound = stable_step(train, members, Descent(1, gamma, 0.3, 0.2))
        assert bound == pytest.approx(stable_step_of_blocks(blocks(train, members), Descent(1, gamma, 0.3, 0.2)))
        below, above = (
            predict_mse(train, train, f, f, Y, Descent(4000, gamma, 0.3 * step, 0.2 * step, True)).sub(Y).abs().max()
            for step in (0.99 * bound, 1.01 * bound)
        )
        assert below < 10
        assert above > 1e6


# The law over initialisations


def initial_covariance(train: Kernels, cross: Kernels, test: Kernels, members: int) -> Tensor:
    """Covariance of all outputs at the start: members at n inputs, then members at k inputs."""
    eye = torch.eye(members, dtype=torch.float64)

    def spread_out(each: Kernels) -> Tensor:
        return torch.kron(eye, each.covariance_same) + torch.kron(1 - eye, each.covariance_other)

    side = spread_out(cross)
    return torch.cat([torch.cat([spread_out(train), side.mT], 1), torch.cat([side, spread_out(test)], 1)])


@pytest.mark.parametrize("architecture", [COLLECTIVE, INDEPENDENT, MASKS])
def test_mean_and_variances_are_those_of_the_carried_gaussian(architecture: Architecture):
    train, cross, test = kernels(architecture)
    members, descent = 3, Descent(4.0, 2.0, 0.3, 0.2)
    flow = generator_of(blocks(train, members), blocks(cross, members), descent)
    propagator = torch.linalg.matrix_exp(flow * descent.time)
    rows = propagator[members * 5 :]
    covariance = (rows @ initial_covariance(train, cross, test, members) @ rows.mT).view(members, 2, members, 2)
    mean = -(rows[:, : members * 5] @ Y.repeat(members)).view(members, 2)
    law = ensemble_law(train, cross, test, Y, members=members, descent=descent)
    each = torch.einsum("aiai->ai", covariance)[0]
    of_mean = torch.einsum("aibi->i", covariance) / members**2
    torch.testing.assert_close(law.mean, mean[0], rtol=0, atol=1e-10)
    torch.testing.assert_close(law.variance, of_mean, rtol=0, atol=1e-10)
    torch.testing.assert_close(law.spread, each - of_mean, rtol=0, atol=1e-10)


def test_variance_of_the_mean_falls_as_one_over_members_only_for_independent_ones():
    descent = {members: Descent(4.0, members, 0.3, 0.2) for members in (1, 10, 10_000)}
    one, ten, many = (ensemble_law(*kernels(INDEPENDENT), Y, members=m, descent=d) for m, d in descent.items())
    torch.testing.assert_close(ten.variance, one.variance / 10, rtol=1e-11, atol=0)
    torch.testing.assert_close(ten.variance + ten.spread, one.variance, rtol=1e-11, atol=0)
    assert many.variance.max() < 1.1e-4 * one.variance.max()
    one, ten, many = (
        ensemble_law(*kernels(COLLECTIVE), Y, members=m, descent=Descent(4.0, 1.0, 0.3, 0.2)) for m in descent
    )
    assert (many.variance > 0.1 * one.variance).all()


def test_before_training_variances_are_those_of_the_start():
    train, cross, test = kernels(COLLECTIVE)
    law = ensemble_law(train, cross, test, Y, members=4, descent=Descent(0.0, 1.0))
    same, other = test.covariance_same.diagonal(), test.covariance_other.diagonal()
    assert torch.equal(law.mean, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(law.variance, (same + 3 * other) / 4)
    torch.testing.assert_close(law.spread, 0.75 * (same - other))


def test_averages_undo_blocks():
    train, cross, _ = kernels(COLLECTIVE)
    for got, expected in zip(
        average_kernels(blocks(cross, 4)), (cross.tangent_same, cross.tangent_other, cross.individual), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-13, atol=1e-15)
    assert torch.equal(average_kernels(blocks(train, 1))[1], torch.zeros(5, 5, dtype=torch.float64))


def test_only_the_common_block_scales_with_gamma():
    train, _, _ = kernels(COLLECTIVE)
    written = blocks(train, 4)
    once, four, none = (block_matrix(written, Descent(1.0, gamma)) for gamma in (1.0, 4.0, 0.0))
    torch.testing.assert_close(four - none, 4 * (once - none), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(none, torch.block_diag(*[train.individual] * 4), rtol=0, atol=0)
    assert torch.equal(written.common, blocks(train, 4).common)  # the input is left as it was


def test_wrong_requests_say_what_to_give():
    train, cross, _ = kernels(COLLECTIVE)
    with pytest.raises(Misuse, match=r"2.5 steps of gradient descent: give a whole number, or discrete=False"):
        Descent(2.5, 1.0, discrete=True)
    with pytest.raises(Misuse, match="training time inf: give a finite number that is not negative"):
        Descent(math.inf, 1.0)
    with pytest.raises(
        Misuse, match=r"outputs of shapes \(3, 5\) and \(3, 2\), targets \(4,\): give \(M, n\), \(M, k\), "
    ):
        predict_mse(train, cross, *start(3), Y[:4], Descent(1.0, 1.0))
    with pytest.raises(Misuse, match=r"outputs of shapes \(3, 5\) and \(2,\)"):
        predict_mse(train, cross, start(3)[0], start(3)[1][0], Y, Descent(1.0, 1.0))
