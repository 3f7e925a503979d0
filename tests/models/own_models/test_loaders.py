"""Torch datasets and data loaders: read when needed, augmented anew; runs repeat and resume bit for bit."""

import copy
import random
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import murmuration as mm
from murmuration.data.streamed import seed_generators
from murmuration.training.fitting import reopen

X = torch.randn(90, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.3).long()
PLAIN = {"members": 2, "epochs": 2, "batch_size": 16, "engine": "loop", "posthoc": None}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


class Noisy(Dataset):
    """Examples with noise of all three global generators; keeps the indices and noises of its reads."""

    def __init__(self, x: Tensor = X, y: Tensor = Y, std: float = 0.1, own: bool = False) -> None:
        self.x, self.y, self.std = x, y, std
        self.rng = np.random.default_rng() if own else None
        self.reads: list[int] = []
        self.noises: list[float] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.reads.append(i)
        if self.rng is not None:
            noise = float(self.rng.normal())
        else:
            noise = float(torch.randn(())) + float(np.random.randn()) + random.gauss(0, 1)  # noqa: NPY002
        self.noises.append(noise)
        return self.x[i] + self.std * noise, int(self.y[i])


def tensors(ensemble: mm.Ensemble) -> dict[str, Tensor]:
    return ensemble.groups[0].population.to_tensors()


def same_bits(a: mm.Ensemble, b: mm.Ensemble) -> bool:
    return all(torch.equal(tensors(a)[name], tensors(b)[name]) for name in tensors(a))


def parts(std: float = 0.1) -> tuple[Dataset, Dataset]:
    return Noisy(X[:70], Y[:70], std), TensorDataset(X[70:], Y[70:])


@pytest.mark.parametrize("order", ["own", "same", "split"])
def test_a_streamed_run_has_the_bits_of_one_in_memory(order):
    """Without augmentation, reading when needed changes nothing: same batches, same weights."""
    given = TensorDataset(X, Y)
    plan = {**PLAIN, "members": 3, "batch_order": order, "engine": "stacked"}
    streamed = mm.fit(mlp, given, **plan)
    whole = mm.fit(mlp, (X, Y), prepare="none", **plan)
    assert same_bits(streamed, whole)
    assert same_bits(mm.fit(mlp, given, in_memory=True, prepare="none", **plan), whole)
    assert torch.equal(streamed.predict(given).outputs, whole.predict(X).outputs)


def test_augmentation_is_drawn_anew_for_each_member_and_epoch():
    train, val = parts()
    mm.fit(mlp, (train, val), **{**PLAIN, "epochs": 5})
    opening = len(train.reads) - 5 * 2 * 70
    assert 70 < opening < 200  # one pass for the targets, and a few examples: of the network's check and the engine's
    counts = np.bincount(train.reads[-5 * 2 * 70 :], minlength=70)
    assert (counts == 10).all()
    assert len(set(train.noises[-5 * 2 * 70 :])) == 5 * 2 * 70


def test_members_of_one_order_see_the_same_augmentation():
    train, val = parts()
    before = len(train.reads)
    mm.fit(mlp, (train, val), **{**PLAIN, "epochs": 3, "batch_order": "same"})
    assert len(set(train.noises[-3 * 70 :])) == 3 * 70
    assert len(train.reads) - before < 3 * 70 + 200


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_repeats_bit_for_bit_and_leaves_the_global_generators_alone(workers):
    train, val = parts()
    loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=workers)

    def draw() -> tuple[float, float, float]:
        return torch.rand(()).item(), float(np.random.rand()), random.random()  # noqa: NPY002

    seed_generators(5)
    expected = draw()
    seed_generators(5)
    first = mm.fit(mlp, (loader, val), **{k: v for k, v in PLAIN.items() if k != "batch_size"})
    assert draw() == expected
    assert same_bits(first, mm.fit(mlp, parts(), **PLAIN))
    assert not same_bits(first, mm.fit(mlp, parts(), **PLAIN, seed=1))


@pytest.mark.parametrize("steps", [3, 5, 7])
def test_a_killed_run_ends_with_the_same_bits(steps, tmp_path):
    undisturbed = mm.fit(mlp, parts(), **PLAIN)

    def show(text: str, done: int, total: int, record: dict | None) -> None:
        if done == steps:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        mm.fit(mlp, parts(), **PLAIN, out=tmp_path / "run", progress=show, checkpoint_seconds=0)
    resumed = mm.resume(tmp_path / "run", net=mlp, data=parts())
    assert same_bits(undisturbed, resumed)
    assert resumed.history == undisturbed.history
    with pytest.raises(mm.Failure, match="has changed since the run was trained"):
        reopen(resumed.manifest, parts(std=0.2))


def test_the_settings_of_a_loader_are_kept_or_refused():
    train, val = parts(0.0)
    plain = {"members": 2, "epochs": 1, "engine": "loop", "posthoc": None}

    def loader(**settings) -> DataLoader:
        return DataLoader(train, **{"batch_size": 20, "shuffle": True, **settings})

    run = mm.fit(mlp, (loader(drop_last=True), val), **plain)
    assert (run.manifest.plan["batch_size"], run.manifest.plan["drop_last"]) == (20, True)
    assert same_bits(run, mm.fit(mlp, (train, val), **plain, batch_size=20, drop_last=True))
    with pytest.raises(mm.Misuse, match="batch_size=32 and a DataLoader of batch_size=20"):
        mm.fit(mlp, (loader(), val), **plain, batch_size=32)
    with pytest.raises(mm.Misuse, match="drop_last=True and a DataLoader of drop_last=False"):
        mm.fit(mlp, (loader(), val), **plain, drop_last=True)
    with pytest.raises(mm.Misuse, match="with a batch_sampler"):
        mm.fit(mlp, (DataLoader(train, batch_sampler=[[0, 1], [2, 3]]), val), **plain)
    with pytest.warns(UserWarning, match="shuffle=False: all members see the examples in one order"):
        mm.fit(mlp, (loader(shuffle=False), val), **plain)
    with pytest.raises(mm.Misuse, match="the DataLoader of val examples leaves some out"):
        mm.fit(mlp, (train, DataLoader(val, batch_size=3, drop_last=True)), **plain)


def test_a_sampler_of_the_callers_own_draws_the_examples():
    """Weights of zero are never drawn; an epoch has as many draws as the sampler says."""
    train, val = parts(0.0)
    weights = (torch.arange(70) % 2).double()
    sampler = WeightedRandomSampler(weights, num_samples=40)
    run = mm.fit(
        mlp, (DataLoader(train, batch_size=10, sampler=sampler), val), members=2, epochs=3, engine="loop", posthoc=None
    )
    read = train.reads[-3 * 2 * 40 :]
    assert all(i % 2 for i in read)
    assert run.history[-1]["epoch"] == 3
    each = [tuple(read[10 * i : 10 * i + 10]) for i in range(24)]
    assert len(set(each)) == 24  # other draws for each member, step and epoch
    with pytest.raises(mm.Misuse, match="WeightedRandomSampler, and other splits taken from it"):
        mm.fit(mlp, DataLoader(train, batch_size=10, sampler=sampler), epochs=1)


def test_loaders_of_subsets_of_one_dataset():
    """The idiom of two SubsetRandomSamplers: the run is that on the two subsets."""
    given, plain = TensorDataset(X, Y), {"members": 2, "epochs": 2, "engine": "loop", "posthoc": None}
    rows = np.random.default_rng(0).permutation(90)
    train, val = np.sort(rows[:70]), np.sort(rows[70:])
    loaders = [DataLoader(given, batch_size=16, sampler=SubsetRandomSampler(part)) for part in (rows[:70], rows[70:])]
    run = mm.fit(mlp, tuple(loaders), **plain)
    other = mm.fit(mlp, (TensorDataset(X[train], Y[train]), TensorDataset(X[val], Y[val])), batch_size=16, **plain)
    assert same_bits(run, other)
    assert run.manifest.data["examples"] == {"train": 70, "val": 20, "test": 0}


def test_a_distributed_sampler_has_another_order_in_every_epoch():
    train, val = parts(0.0)
    sampler = DistributedSampler(train, num_replicas=2, rank=0)
    loader = DataLoader(train, batch_size=5, sampler=sampler)
    mm.fit(mlp, (loader, val), members=1, epochs=2, engine="loop", posthoc=None)
    assert train.reads[-70:-35] != train.reads[-35:]


class Counting(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


class Single(Dataset):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> Tensor:
        return X[i]


class Ragged(Single):
    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return X[i, : 1 + i % 3], 0


class Named(Single):
    def __getitem__(self, i: int) -> dict:
        return {"x": X[i], "label": Y[i]}


class Triple(Single):
    def __getitem__(self, i: int) -> tuple:
        return X[i], int(Y[i]), 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Counting(), "Counting is not a map-style data set"),
        (DataLoader(Counting(), batch_size=4), "Counting is not a map-style data set"),
        (Single(), "Single gives inputs alone: expected pairs"),
        (Named(), r"Named gives dicts of x, label: expected pairs \(x, y\), where x may be a dict"),
        (Ragged(), "do not form a batch: stack expects each tensor to be equal size"),
        (Triple(), "gives 3 values an example"),
        (TensorDataset(X[:0], Y[:0]), "TensorDataset is empty"),
    ],
)
def test_what_cannot_be_streamed_is_refused_in_one_line(given, message):
    with pytest.raises(mm.Misuse, match=message) as caught:
        mm.fit(mlp, given, epochs=1)
    assert "\n" not in str(caught.value)


def test_other_misuse_of_datasets_is_refused_in_one_line():
    given = TensorDataset(X, Y)
    with pytest.raises(mm.Misuse, match="whose inputs are taken as they are"):
        mm.fit(mlp, given, prepare="standardise", epochs=1)
    with pytest.raises(mm.Misuse, match=r"a data set beside a tuple: give \(train, val\) data sets"):
        mm.fit(mlp, (given, (X, Y)), epochs=1)
    with pytest.raises(mm.Misuse, match="Counting is not a map-style data set"):
        mm.Ensemble.from_models([mlp()]).predict(DataLoader(Counting(), batch_size=4))


def test_one_augmenting_dataset_for_all_splits_is_warned_of():
    with pytest.warns(UserWarning, match="Noisy draws random numbers for validation examples too"):
        mm.open_data(Noisy())
    with pytest.warns(UserWarning, match="draws from a private random generator"):
        mm.open_data((Noisy(own=True), TensorDataset(X, Y)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm.open_data(TensorDataset(X, Y))
        mm.open_data((Noisy(), TensorDataset(X, Y)))


def test_splits_of_a_dataset():
    data = mm.open_data(
        (TensorDataset(X[:50], Y[:50]), TensorDataset(X[50:70], Y[50:70]), TensorDataset(X[70:], Y[70:]))
    )
    assert [len(split) for split in (data.train, data.val, data.test)] == [50, 20, 20]
    assert torch.equal(data.val.prepared, X[50:70])
    assert torch.equal(data.test.prepared[:], X[70:])
    assert data.input_shape == (4,)
    with pytest.raises(mm.Misuse, match=r"write mm.open_data\(dataset, in_memory=True\)"):
        data.train.prepared.double()
    assert torch.equal(copy.deepcopy(data).train.prepared[:3], X[:3])
    other = mm.open_data(TensorDataset(X[:50], Y[:50]), val=DataLoader(TensorDataset(X[50:], Y[50:])), test=0.2)
    assert [len(split) for split in (other.train, other.val, other.test)] == [40, 40, 10]


def test_prediction_and_evaluation_are_streamed(tmp_path):
    given = TensorDataset(X, Y)
    run = mm.fit(mlp, given, **{**PLAIN, "posthoc": True})
    loader = DataLoader(given, batch_size=7)
    torch.testing.assert_close(run.predict(loader).outputs, run.predict(X).outputs)  # in parts: rounded otherwise
    assert len(run.predict(Single()).outputs[0]) == 50
    found, expected = mm.evaluate(run, loader), mm.evaluate(run, (X, Y))
    assert float(found.scores["nll"]) == pytest.approx(float(expected.scores["nll"]), rel=1e-6)
    assert run.fit_posthoc(DataLoader(given, batch_size=8, shuffle=True)).posthoc is not None
    mm.save_predictions(run, loader, tmp_path / "a.csv")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 91
    data = mm.open_data((given, given, given))
    assert torch.equal(run.predict(data.test.prepared, prepared=True).outputs, run.predict(X).outputs)
    mm.evaluate(run, data, out=tmp_path / "report")
    assert (tmp_path / "report" / "report.html").exists()
    with pytest.raises(mm.Misuse, match="write shuffle=False to keep the order of predictions"):
        run.predict(DataLoader(given, batch_size=7, shuffle=True))
    elsewhere = mm.Ensemble.from_models([mlp(), mlp()])
    made, whole = (elsewhere.predict(x).outputs for x in (loader, X))
    torch.testing.assert_close(made, whole, rtol=1e-5, atol=1e-6)  # products of other sizes
    assert float(mm.evaluate(elsewhere, loader).scores["accuracy"]) >= 0


@pytest.mark.parametrize("recipe", ["forde", "bayes", "batch-ensemble", "swa", "mc-dropout"])
def test_recipes_train_on_streams(recipe):
    many = {} if recipe in ("bayes", "mc-dropout") else {"members": 2}

    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    run = mm.fit(normed, parts(), recipe=recipe, epochs=4, batch_size=16, posthoc=None, engine="loop", **many)
    assert torch.isfinite(run.predict(X[:3]).outputs).all()


def test_targets_may_be_drawn_too():
    """A regression on a random shift that the dataset adds to both input and target."""

    class Shifted(Single):
        def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
            shift = torch.randn(())
            return X[i, :1] + shift, X[i, :1] + shift

    val = TensorDataset(X[50:, :1], X[50:, :1])
    run = mm.fit(lambda: nn.Linear(1, 1), (Shifted(), val), noise_std=0.1, epochs=60, members=1, lr=0.05, posthoc=None)
    assert run.history[-1]["ensemble"]["val_rmse"] < 0.1
