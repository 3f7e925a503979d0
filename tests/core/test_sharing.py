"""What members share: the texts, who owns what, and whole runs on networks of every kind."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.engines import Engine, assemble, engine
from murmuration.core.recipe import Recipe, make_recipe, recipe_from_json
from murmuration.core.sharing import SHARING, Sharing, norm_parameters
from murmuration.core.step import step
from murmuration.core.weights import KernelTrace, trace_kernels
from murmuration.core.weights.distributions import RandomSign
from murmuration.data import Data, Split, open_data
from murmuration.likelihoods import Categorical
from murmuration.models.nets import build_net
from murmuration.system.errors import Misuse
from murmuration.system.option_text import parse
from murmuration.training import Progress, TrainSpec, begin, train
from murmuration.training.batches import epoch_batches, plan_slices
from murmuration.training.plan import Plan

BATCHED = make_recipe("batch-ensemble")
PLAN = Plan(members=3, epochs=1, batch_size=32, engine="loop", lr=5e-3)


@pytest.fixture(scope="module")
def little(digits: Data) -> Data:
    return open_data((digits.train.prepared[:200], digits.train.y[:200]))


# texts

WRITTEN = [
    ("own", Sharing("own")),
    ("all:gamma=M", Sharing("all", gamma="M")),
    ("backbone:frozen=runs/x,1", Sharing("backbone", frozen="runs/x,1")),
    ("names:shared=body.*;head.bias,gamma=2", Sharing("names", shared="body.*;head.bias", gamma=2.0)),
    ("rank-one: init=sign_0.75 , lr_multiplier=0.5", Sharing("rank-one", init=RandomSign(0.75), lr_multiplier=0.5)),
    ("rank-one-uv", Sharing("rank-one", bias="inside", first=False, last=False)),
    ("rank-one-uv:bias=own,gamma=smooth", Sharing("rank-one", gamma="smooth", bias="own", first=False, last=False)),
    ("rank-one:norm=shared,decay=yes,last=no", Sharing("rank-one", norm="shared", decay=True, last=False)),
]


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_what_is_written_is_what_is_meant(text: str, expected: Sharing):
    assert parse(text, "sharing", SHARING) == expected
    kept = recipe_from_json(make_recipe(Recipe("made"), sharing=text, weights="masks").to_json())
    assert kept.sharing == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank1", "unknown answer to --sharing 'rank1': did you mean 'rank-one'?"),
        ("rank-one:inti=ones", "unknown setting of a sharing (name=value) 'inti': did you mean 'init'?"),
        ("rank-one:what=own", "unknown setting of a sharing (name=value) 'what'"),
        ("rank-one:init=gauss", "unknown distribution 'gauss'"),
        (
            "rank-one:init=normal_1",
            "distribution 'normal_1' is not understood: normal takes the mean and a standard deviation",
        ),
        ("rank-one:bias=mine", "unknown bias 'mine'"),
        ("rank-one:norm=none", "unknown norm 'none'"),
        ("rank-one:first=maybe", "sharing setting first=maybe: expected yes or no"),
        ("rank-one:decay=0.1", "sharing setting decay=0.1: expected yes or no"),
        ("rank-one:lr_multiplier=fast", "sharing setting lr_multiplier=fast: expected a number"),
        ("rank-one:lr_multiplier=-1", "lr_multiplier=-1.0: need a number that is not negative, such as 0.5"),
        ("rank-one:lr_multiplier=inf", "lr_multiplier=inf: need a number that is not negative"),
        ("rank-one:gamma=m", "gamma=m: write 1 (mean), M (sum), smooth, or a positive number"),
        ("rank-one:gamma=0", "gamma=0.0: write 1 (mean), M (sum), smooth, or a positive number"),
        ("rank-one:gamma=nan", "gamma=nan: write 1 (mean)"),
        ("rank-one:gamma=1,gamma=M", "gamma is given twice; write it once"),
        ("rank-one:frozen=yes", "frozen=yes with sharing rank-one: only a backbone can be; write backbone:frozen=yes"),
        ("head:shared=body.*", "sharing names needs patterns of what is shared, and nothing else does"),
        ("names:shared=", "sharing names needs patterns of what is shared"),
        ("backbone:init=ones", "init=ones with sharing backbone: only rank-one has factors"),
        ("own:lr_multiplier=0.5", "lr_multiplier=0.5 with sharing own: only rank-one has factors"),
        ("all:bias=shared", "bias=shared with sharing all: only rank-one has factors"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        parse(text, "sharing", SHARING)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_gamma_in_numbers():
    found = {
        text: parse(f"all:gamma={text}", "sharing", SHARING).gamma_of(members=7, smooth=1.9)
        for text in ("1", "M", "smooth")
    }
    assert found == {"1": 1.0, "M": 7.0, "smooth": 1.9}


# who owns what


def who_shares(answer: str | Sharing, module: nn.Module, trace: KernelTrace | None = None) -> list[str]:
    sharing = parse(answer, "sharing", SHARING) if isinstance(answer, str) else answer
    shared = sharing.predicate(module, trace)
    return [name for name, _ in module.named_parameters() if shared(name)]


def test_each_answer_splits_the_parameters():
    net = build_net("mlp", (4,), 3, hidden=(5,))
    assert who_shares("own", net) == []
    assert who_shares("all", net) == ["body.1.weight", "body.1.bias", "head.weight", "head.bias"]
    assert who_shares("head", net) == ["head.weight", "head.bias"]
    assert who_shares("backbone", net) == ["body.1.weight", "body.1.bias"]
    assert who_shares("names:shared=*.bias; body.*.weight", net) == ["body.1.weight", "body.1.bias", "head.bias"]


def test_a_pattern_that_nothing_matches_is_refused(little: Data):
    with pytest.raises(Misuse, match=r"unknown names of parameters 'boddy\.\*'"):
        mm.fit(
            "mlp",
            little,
            recipe=make_recipe("deep-ensemble", sharing="names:shared=head.*;boddy.*"),
            plan=PLAN,
            posthoc=None,
        )


def test_rank_one_shares_kernels_and_what_it_is_told(normalised_net):
    net = normalised_net()
    trace = trace_kernels(net, torch.zeros(2, 1, 8, 8))
    biases, norms = ["convolution.bias", "head.bias"], ["norm.weight", "norm.bias"]
    kernels = ["convolution.weight", "head.weight"]
    assert norm_parameters(net) == norms
    assert sorted(who_shares("rank-one:bias=own", net, trace)) == sorted(kernels)
    assert sorted(who_shares("rank-one", net, trace)) == sorted([*kernels, "convolution.bias"])
    assert sorted(who_shares("rank-one:bias=shared", net, trace)) == sorted(kernels + biases)
    assert sorted(who_shares("rank-one-uv", net, trace)) == sorted(kernels + biases)
    assert sorted(who_shares("rank-one:norm=shared,bias=own", net, trace)) == sorted(kernels + norms)


def test_nothing_of_their_own_is_refused(little: Data):
    with pytest.raises(Misuse, match="sharing all with weights point: members would stay equal; write weights masks"):
        make_recipe(Recipe("made"), sharing="all")
    with pytest.raises(Misuse, match=r"sharing names leaves members nothing of their own"):
        mm.fit("mlp", little, recipe=make_recipe("deep-ensemble", sharing="names:shared=*"), plan=PLAN, posthoc=None)
    with pytest.raises(Misuse, match="has no parts body and head"):
        mm.fit(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
            little,
            recipe=make_recipe("deep-ensemble", sharing="backbone"),
            plan=PLAN,
            posthoc=None,
        )


# batches


def test_batches_are_split_or_the_same():
    split = Split(torch.arange(100.0).unsqueeze(1), torch.arange(100))
    parts = epoch_batches(split, Plan(members=3, batch_size=20, batch_order="split"), 0)
    whole = epoch_batches(split, Plan(members=3, batch_size=20, batch_order="same"), 0)
    for index in range(5):
        x, y = parts(index).fetch(slice(0, 3))
        assert x.shape == (3, 6, 1)
        assert torch.equal(x[..., 0].long(), y)
        together, _ = whole(index).fetch(slice(0, 3))
        assert torch.equal(together[0], together[1])
        assert len(set(y.flatten().tolist())) == 18  # no example is seen by two members
        assert set(y.flatten().tolist()) < set(together[0].flatten().long().tolist())  # parts of the batch all see
        last, _ = parts(index).fetch(slice(2, 3))
        assert torch.equal(last[0], x[2])


def test_a_batch_too_small_to_split_is_refused():
    with pytest.raises(Misuse, match="batch_order=split: 8 members cannot split 4 examples a step"):
        Plan(members=8, batch_size=4, batch_order="split")


# whole runs


class Encoder(nn.Module):
    """Rows of a picture are tokens, behind one that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.place = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 9, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat([self.start.expand(len(x), -1, -1), x.squeeze(1)], 1) + self.place
        return self.head(self.layer(tokens)[:, 0])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.squeeze(1)
        return self.head(self.attention(tokens, tokens, tokens)[0].mean(1))


class Words(nn.Module):
    """Grey levels as words."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.hidden, self.head = nn.Embedding(4, 5), nn.Linear(320, 12), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        words = (x.flatten(1) > 0).long() + (x.flatten(1) > 0.5).long()
        return self.head(torch.relu(self.hidden(self.table(words).flatten(1))))


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        self.part, self.head = kind(8, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part(x.squeeze(1))[0][:, -1])


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.head = nn.Parameter(torch.randn(64, 8) / 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(x.flatten(1) @ self.matrix))


NETS = {
    "transformer": Encoder,
    "attention": Attention,
    "words": Words,
    "resnet": lambda: build_net("resnet20", (1, 8, 8), 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("net", [*NETS, "norm"])
@pytest.mark.parametrize("text", ["rank-one", "rank-one-uv:norm=shared,gamma=M"])
def test_networks_need_no_edits(net: str, text: str, little: Data, normalised_net):
    """Kernels are stored once, members differ, learn, and are plain networks (float32 rounding of products)."""
    make = NETS.get(net, normalised_net)
    small = net != "resnet"
    data = little if small else open_data((little.train.prepared[:64], little.train.y[:64]))
    plan = replace(PLAN, members=3 if small else 2, epochs=2 if small else 1)
    ensemble = mm.fit(make, data, recipe=make_recipe("batch-ensemble", sharing=text), plan=plan, posthoc=None)
    population, plain = ensemble.groups[0].population, make()
    kernels = [name for name, p in plain.named_parameters() if p.dim() > 1]
    assert set(kernels) <= set(population.shared)
    assert set(norm_parameters(plain)) <= set(population.shared if "norm=shared" in text else population.own)
    if small:
        losses = [sum(record["train_loss"]) for record in ensemble.history]
        assert losses[-1] < losses[0]
    x = data.test.prepared[:8]
    outputs = ensemble.predict(x, prepared=True).outputs
    assert (outputs[0] - outputs[1]).abs().max() > 1e-3
    for i in range(ensemble.members):
        with torch.no_grad():
            torch.testing.assert_close(ensemble.member(i)(x), outputs[i], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_members_use_and_move_their_own_tensors(kind: type[nn.RNNBase], little: Data):
    """Torch's recurrent layers keep a second list of their tensors; it must not be the one that is used."""
    starts, ends = (
        mm.fit(lambda: Recurrent(kind), little, plan=replace(PLAN, members=2, epochs=epochs, lr=lr), posthoc=None)
        for epochs, lr in ((1, 1e-12), (2, 1e-2))
    )
    before, after = (each.groups[0].population.own["part.weight_ih_l0"] for each in (starts, ends))
    assert ((after - before).abs().amax((1, 2)) > 1e-3).all()
    x = little.test.prepared[:8]
    outputs = ends.predict(x, prepared=True).outputs
    for i in range(2):
        alone = Recurrent(kind)
        alone.load_state_dict({name: tensor[i] for name, tensor in ends.groups[0].population.own.items()})
        with torch.no_grad():
            torch.testing.assert_close(alone(x), outputs[i], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Product, "'matrix' is multiplied by torch.Tensor.matmul, which this recipe cannot act on: write torch.nn"),
        (Recurrent, "'part.weight_ih_l0' is multiplied by torch.lstm, which this recipe cannot act on"),
    ],
)
def test_what_rank_one_cannot_act_on_is_refused_and_trains_otherwise(net, message: str, little: Data):
    for preset in ("batch-ensemble", "mask-ensemble"):
        with pytest.raises(Misuse) as caught:
            mm.fit(net, little, recipe=preset, plan=PLAN, posthoc=None)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    ensemble = mm.fit(net, little, plan=replace(PLAN, epochs=2), posthoc=None)
    assert sum(ensemble.history[-1]["train_loss"]) < sum(ensemble.history[0]["train_loss"])


@pytest.mark.parametrize("text", ["rank-one:init=ones", "rank-one:init=ones,gamma=M"])
def test_whole_runs_of_equal_members_keep_them_equal(text: str, little: Data):
    """Biases begin at zero and all see the same batches; then nothing tells members apart, bit for bit."""

    def build() -> nn.Module:
        net = build_net("mlp", (1, 8, 8), 10, hidden=(16,))
        for name, parameter in net.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
        return net

    ensemble = mm.fit(
        build,
        little,
        recipe=make_recipe("batch-ensemble", sharing=text),
        plan=replace(PLAN, batch_order="same", epochs=2),
        posthoc=None,
    )
    for name, tensor in ensemble.groups[0].population.own.items():
        assert torch.equal(tensor[0], tensor[1]), name
        assert torch.equal(tensor[0], tensor[2]), name
    assert sum(ensemble.history[1]["train_loss"]) < sum(ensemble.history[0]["train_loss"])


def test_members_who_share_stop_together_and_go_back_together(little: Data):
    """A rate so high that validation gets worse at some epoch; all is as it was after the best one."""
    plan = replace(PLAN, epochs=12, patience=2, lr=0.05, schedule="constant")
    chosen = make_recipe("batch-ensemble")
    ensemble = mm.fit("mlp", little, recipe=chosen, plan=plan, posthoc=None)
    means = [sum(record["val_nll"]) / 3 for record in ensemble.history]
    best = means.index(min(means))
    assert best < len(means) - 1  # else nothing is tested
    assert len(means) == best + 1 + 2
    assert all(record["active"] == [True] * 3 for record in ensemble.history[:-1])
    assert ensemble.history[-1]["active"] == [False] * 3
    shorter = mm.fit("mlp", little, recipe=chosen, plan=replace(plan, epochs=best + 1, patience=None), posthoc=None)
    mine, theirs = (each.groups[0].population.to_tensors() for each in (ensemble, shorter))
    assert all(torch.equal(theirs[name], tensor) for name, tensor in mine.items())


class Nobody:
    """Looks away."""

    def after_step(self, progress: Progress) -> None: ...

    def after_epoch(self, progress: Progress) -> None: ...


@pytest.mark.parametrize("how", [engine("loop"), engine("stacked"), engine("stacked", direct=True), engine("threads")])
def test_a_member_that_falls_leaves_what_all_share_alone(how: Engine, little: Data):
    """Its first loss is nonsense. It goes back and stands still; the others learn as if it had never pulled."""
    plan = replace(PLAN, epochs=2, optimizer="sgd", lr=0.05, momentum=0.0)
    spec = TrainSpec(lambda: build_net("mlp", (1, 8, 8), 10, hidden=(12,)), little, Categorical(10), BATCHED, plan)
    progress, reference = begin(spec), begin(spec)
    progress.state.population.own["head.weight:out"][1] = torch.nan
    found = train(spec, how, progress, Nobody())
    assert progress.history[-1]["active"] == [True, False, True]
    assert "loss nan at step 0; has its initial weights" in progress.history[-1]["diverged"]["1"]
    assert all(tensor.isfinite().all() for tensor in found.to_tensors().values())
    reference.state.active[1] = False
    steps = len(plan_slices(len(little.train), plan))
    before = {name: tensor.clone() for name, tensor in reference.state.population.shared.items()}
    with assemble(engine("loop"), spec.member(0)) as team:
        for index in range(2 * steps):
            epoch, place = divmod(index, steps)
            step(team, spec.method.step_config, reference.state, epoch_batches(little.train, plan, epoch)(place))
            if index == 0:  # the fallen member was still in the sum: what all share stayed as it was
                reference.state.population.shared.update(before)
    for name, tensor in reference.state.population.take(torch.tensor([0, 2])).to_tensors().items():
        torch.testing.assert_close(found.to_tensors()[name], tensor, rtol=1e-4, atol=1e-5)  # it is left out


@pytest.mark.slow
@pytest.mark.parametrize("text", ["rank-one-uv:gamma=M", "rank-one:norm=shared,lr_multiplier=0.3,decay=yes"])
def test_saving_and_killing_change_nothing(text: str, little: Data, tmp_path: Path, normalised_net):
    def stop(said, done, total, record):
        if done == 6:
            raise InterruptedError

    data = (little.train.prepared, little.train.y)
    plan = replace(PLAN, epochs=3, weight_decay=1e-2, decay="decoupled")
    chosen = make_recipe("batch-ensemble", sharing=text)
    whole = mm.fit(normalised_net, data, recipe=chosen, plan=plan, posthoc=None)
    with pytest.raises(InterruptedError):
        mm.fit(
            normalised_net,
            data,
            recipe=chosen,
            plan=plan,
            out=tmp_path / "run",
            progress=stop,
            checkpoint_seconds=0,
            posthoc=None,
        )
    mm.resume(tmp_path / "run", net=normalised_net, data=data)
    again = mm.load(tmp_path / "run", net=normalised_net)
    mine, theirs = (each.groups[0].population.to_tensors() for each in (whole, again))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in mine.items())
    x = little.test.prepared[:9]
    assert torch.equal(again.predict(x, prepared=True).outputs, whole.predict(x, prepared=True).outputs)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["loop", "stacked", "threads"])
def test_a_repulsive_batch_ensemble_is_two_answers(how: str, little: Data):
    chosen = make_recipe("batch-ensemble", coupling="input-gradients")
    ensemble = mm.fit("mlp", little, recipe=chosen, plan=replace(PLAN, epochs=2, engine=how), posthoc=None)
    for record in ensemble.history:
        assert 0 < record["coupling"]["mean_kernel"] < 1
        assert record["coupling"]["push_to_loss"] > 0
    assert set(ensemble.groups[0].population.shared) == {
        *("body.1.weight", "body.1.bias", "body.3.weight", "body.3.bias", "head.weight")
    }
    alone = mm.fit(
        "mlp", little, recipe="batch-ensemble", plan=replace(PLAN, epochs=2, batch_order="same"), posthoc=None
    )
    assert not torch.equal(
        alone.groups[0].population.shared["head.weight"], ensemble.groups[0].population.shared["head.weight"]
    )


class OwnNames(nn.Module):
    """Parameters of one's own, not called weight and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.shift = nn.Parameter(torch.randn(12, 64) / 8), nn.Parameter(torch.randn(12))
        self.head = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(nn.functional.linear(x.flatten(1), self.kernel, self.shift)))


@pytest.mark.parametrize("text", ["rank-one", "rank-one-uv"])
def test_names_of_parameters_do_not_matter(text: str, little: Data):
    ensemble = mm.fit(OwnNames, little, recipe=make_recipe("batch-ensemble", sharing=text), plan=PLAN, posthoc=None)
    population, x = ensemble.groups[0].population, little.test.prepared[:8]
    assert "kernel" in population.shared
    assert ("head.bias" in population.own) == (text == "rank-one")
    for i, outputs in enumerate(ensemble.predict(x, prepared=True).outputs):
        with torch.no_grad():
            torch.testing.assert_close(ensemble.member(i)(x), outputs, rtol=1e-4, atol=1e-5)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(8, 6), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.hidden(x)).flatten(1))


def test_layers_on_several_batch_axes_can_be_stacked(little: Data):
    data = open_data((little.train.prepared[:, 0], little.train.y))
    ensemble = mm.fit(Tokens, data, recipe="batch-ensemble", plan=replace(PLAN, engine="stacked"), posthoc=None)
    assert ensemble.engine.name == "stacked"


def test_repulsion_of_weights_that_all_share_is_refused(little: Data):
    chosen = make_recipe("mask-ensemble", coupling="weights")
    with pytest.raises(Misuse, match="coupling weights"):
        mm.fit("mlp", little, recipe=chosen, plan=PLAN, posthoc=None)


@pytest.mark.slow
def test_the_smooth_gamma_is_measured_kept_and_obeyed(little: Data, tmp_path: Path):
    """Random signs have next to nothing in common, factors near one nearly all: gamma lies near M, and near 1."""
    found = {}
    for init in ("rademacher", "normal_1_0.1"):
        chosen = make_recipe("batch-ensemble", sharing=f"rank-one:init={init},gamma=smooth")
        plan = replace(PLAN, members=4, optimizer="sgd")
        ensemble = mm.fit("mlp", little, recipe=chosen, plan=plan, out=tmp_path / init, posthoc=None)
        found[init] = ensemble.manifest.gamma
        assert mm.load(tmp_path / init).manifest.gamma == found[init]
        plain = make_recipe("batch-ensemble", sharing=f"rank-one:init={init},gamma={found[init]!r}")
        same = mm.fit("mlp", little, recipe=plain, plan=plan, posthoc=None)
        for name, tensor in ensemble.groups[0].population.shared.items():
            assert torch.equal(same.groups[0].population.shared[name], tensor)
    assert 3 < found["rademacher"] <= 4
    assert 1 <= found["normal_1_0.1"] < 1.3
    alone = make_recipe("batch-ensemble", sharing="rank-one:gamma=smooth")
    assert mm.fit("mlp", little, recipe=alone, plan=replace(PLAN, members=1), posthoc=None).manifest.gamma is None


class BiasOutside(nn.Module):
    """z = x W / sqrt(N) + b, with the bias behind the division."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5))
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(nn.functional.linear(x, self.kernel) / 2 + self.bias))


def test_own_biases_outside_of_an_operator_are_refused():
    net = BiasOutside()
    trace = trace_kernels(net, torch.randn(3, 4))
    with pytest.raises(Misuse, match=r"'bias' is added to activations .* write F.linear\(x, kernel, bias\)"):
        Sharing("rank-one", bias="own").predicate(net, trace)
    for allowed in (Sharing("rank-one", bias="last"), Sharing("rank-one", bias="shared")):
        assert allowed.predicate(net, trace)("bias")
    inside = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    assert not Sharing("rank-one", bias="own").predicate(inside, trace_kernels(inside, torch.randn(3, 4)))("0.bias")
