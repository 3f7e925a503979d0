"""Several fits in threads of one process: the bits of each alone, and torch's global generator as before."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.engines import assemble, engine
from murmuration.data import Data
from murmuration.system import streams
from murmuration.system.streams import global_stream

CPU = torch.device("cpu")


class Own(nn.Module):
    """Batch norm and dropout in a network of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.drop, self.head = (
            nn.Linear(2, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.2),
            nn.Linear(8, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.norm(self.body(x).relu())))


class Drawing(nn.Module):
    """Draws from torch's global generator in every training pass."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.rrelu(self.body(x), training=self.training))


CASES: dict[str, tuple[str | Callable[[], nn.Module], str]] = {
    "mlp": ("mlp:hidden=8", "deep-ensemble"),
    "own": (Own, "deep-ensemble"),
    "drawing": (Drawing, "deep-ensemble"),
    "bayes": ("mlp:hidden=8", "bayes"),
    "dropout": ("mlp:hidden=8,dropout=0.2", "mc-dropout"),
}


def tensors_of(case: str, data: Data, engine: str, seed: int) -> dict[str, Tensor]:
    net, recipe = CASES[case]
    settings = {"members": 2, "epochs": 1, "batch_size": 64, "progress": False}
    return mm.fit(net, data, recipe=recipe, engine=engine, seed=seed, **settings).to_tensors()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
@pytest.mark.parametrize("case", CASES)
def test_fits_in_threads_have_the_bits_of_each_alone(moons: Data, case: str, engine: str):
    before = torch.get_rng_state()
    alone = [tensors_of(case, moons, engine, seed) for seed in (0, 1)]
    together: dict[int, dict[str, Tensor]] = {}

    def train(turn: int) -> None:
        together[turn] = tensors_of(case, moons, engine, turn % 2)

    threads = [threading.Thread(target=train, args=(turn,)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(together) == list(range(6))
    for turn, tensors in together.items():
        assert all(torch.equal(tensor, alone[turn % 2][name]) for name, tensor in tensors.items())
    assert torch.equal(torch.get_rng_state(), before)


def test_one_thread_at_a_time_draws_from_a_global_stream():
    def is_free() -> bool:
        free = streams._global_generators.acquire(blocking=False)
        if free:
            streams._global_generators.release()
        return free

    with ThreadPoolExecutor(1) as other:
        with global_stream(0, "initialisation", 0), global_stream(0, "initialisation", 1):
            assert not other.submit(is_free).result()
        assert other.submit(is_free).result()


@pytest.mark.parametrize(
    ("module", "draws", "repeats", "redirected"),
    [
        (nn.Linear(2, 2), False, True, False),
        (nn.Linear(2, 2), False, False, True),  # with a likelihood of the user's own
        (nn.RReLU(), True, True, True),
        (Own(), False, True, True),  # it may draw in a later pass
    ],
)
def test_engine_loop_redirects_the_global_generator_where_it_may_be_drawn_from(module, draws, repeats, redirected):
    with assemble(engine("loop"), module) as team:
        for _ in range(2):
            with team.noise_stream(0, 0, 0, CPU, repeats):
                torch.rand(int(draws))
        assert team.may_draw == redirected
    with assemble(engine("stacked"), module) as team:
        assert not team.may_draw


def test_training_and_loading_leave_the_global_generator_as_it_was(moons: Data, tmp_path):
    for case, name in (("mlp", "auto"), ("drawing", "loop")):
        before = torch.get_rng_state()
        net, recipe = CASES[case]
        settings = {"members": 2, "epochs": 1, "progress": False, "engine": name, "out": tmp_path / case}
        mm.fit(net, moons, recipe=recipe, **settings)
        mm.load(tmp_path / case, net=None if isinstance(net, str) else net).predict(moons.test)
        assert torch.equal(torch.get_rng_state(), before), case
