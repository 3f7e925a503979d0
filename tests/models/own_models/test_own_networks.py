"""Networks as users write them: what they give, keep, change in place and override works or is refused by name."""

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import murmuration as mm
from murmuration.core.weights import Structure

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.3).long()
PLAN = mm.Plan(members=2, epochs=2, batch_size=16, posthoc=None, engine="loop")


class Giving(nn.Module):
    """A network that gives its logits in some form."""

    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.form, self.body, self.head = form, nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> object:
        hidden = torch.tanh(self.body(x))
        logits = self.head(hidden)
        return {
            "tensor": logits,
            "tuple": (hidden, logits),
            "dict": {"hidden": hidden, "logits": logits},
            "object": SimpleNamespace(hidden=hidden, logits=logits),
        }[self.form]


def second(given: tuple[Tensor, Tensor]) -> Tensor:
    return given[1]


FORMS = [("tuple", 1), ("tuple", -1), ("dict", "logits"), ("object", "logits"), ("tuple", second)]


@pytest.mark.parametrize(("form", "output"), FORMS)
def test_output_picks_the_tensor_of_predictions(form, output, tmp_path: Path):
    plain = mm.fit(Giving, (X, Y), plan=PLAN)
    ensemble = mm.fit(lambda: Giving(form), (X, Y), plan=PLAN, output=output, out=tmp_path / "run")
    assert torch.equal(ensemble.predict(X).outputs, plain.predict(X).outputs)
    again = {} if isinstance(output, str | int) else {"output": output}
    loaded = mm.load(tmp_path / "run", net=lambda: Giving(form), **again)
    assert torch.equal(loaded.predict(X).outputs, plain.predict(X).outputs)
    if again:
        with pytest.raises(mm.Misuse, match="output is a function, second: give it again as output="):
            mm.load(tmp_path / "run", net=lambda: Giving(form))


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads"])
@pytest.mark.parametrize("recipe", ["forde", "batch-ensemble", "bayes", "mc-dropout"])
def test_output_works_in_every_engine_and_recipe(recipe, engine):
    many = recipe in ("forde", "batch-ensemble")
    plan = replace(PLAN, members=2 if many else 1, engine=engine, epochs=1)
    plain, picked = (
        mm.fit(lambda form=form: Giving(form), (X, Y), recipe=recipe, plan=plan, output=output)
        for form, output in (("tensor", None), ("dict", "logits"))
    )
    assert picked.engine == plain.engine
    assert torch.equal(picked.predict(X).outputs, plain.predict(X).outputs)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("tuple", r"the net gives a tuple of 0 \(2, 8\), 1 \(2, 3\) for 2 inputs: .* \(2, 3\); write output=1"),
        ("dict", "a dict of 'hidden' .*; write output='logits'"),
        ("object", "a SimpleNamespace of 'hidden' .*; write output='logits'"),
    ],
)
def test_other_forms_are_refused_with_the_output_to_write(form, message):
    with pytest.raises(mm.Misuse, match=message):
        mm.fit(lambda: Giving(form), (X, Y), plan=PLAN)
    with pytest.raises(mm.Misuse, match=r"output='scores': the net gives a "):
        mm.fit(lambda: Giving(form), (X, Y), plan=PLAN, output="scores")


class RandomFeatures(nn.Module):
    """A random projection kept as a plain attribute, alone, in a list or in a dict; or rightly as a buffer."""

    def __init__(self, kept: str = "plain") -> None:
        super().__init__()
        self.kept, self.head = kept, nn.Linear(16, 3)
        projection = torch.randn(6, 16)
        if kept == "buffer":
            self.register_buffer("projection", projection)
        else:
            self.projection = {"plain": projection, "list": [projection], "dict": {"a": projection}}[kept]

    def forward(self, x: Tensor) -> Tensor:
        found = {"list": lambda p: p[0], "dict": lambda p: p["a"]}.get(self.kept, lambda p: p)(self.projection)
        return self.head(torch.cos(x @ found))


@pytest.mark.parametrize(("kept", "name"), [("plain", ""), ("list", r"\[0\]"), ("dict", r"\['a'\]")])
def test_random_plain_tensors_are_refused_by_name(kept, name):
    with pytest.raises(mm.Misuse, match=f"'projection{name}' .* random, .*self.register_buffer.'projection'"):
        mm.fit(lambda: RandomFeatures(kept), (X, Y), plan=PLAN)


def test_random_buffers_are_each_members_own_and_stored(tmp_path: Path):
    build = lambda: RandomFeatures("buffer")  # noqa: E731
    ensemble = mm.fit(build, (X, Y), plan=PLAN, out=tmp_path / "run")
    assert not torch.equal(ensemble.member(0).projection, ensemble.member(1).projection)
    assert torch.equal(mm.load(tmp_path / "run", net=build).predict(X).outputs, ensemble.predict(X).outputs)


def test_plain_tensors_of_an_instance_must_be_there_again(tmp_path: Path):
    net = RandomFeatures()
    ensemble = mm.fit(net, (X, Y), plan=PLAN, out=tmp_path / "run")
    assert torch.equal(
        mm.load(tmp_path / "run", net=copy.deepcopy(net)).predict(X).outputs, ensemble.predict(X).outputs
    )
    with pytest.raises(mm.Misuse, match="'projection' of the net differs from that of the run"):
        mm.load(tmp_path / "run", net=RandomFeatures())


class Running(nn.Module):
    """A running mean of squared inputs, a plain attribute or a buffer that is replaced, not changed in place."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        if buffer:
            self.register_buffer("mean", torch.zeros(6))
        else:
            self.mean = torch.zeros(6)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().square().mean(0)
        return self.head(x - self.mean)


def test_a_plain_tensor_that_training_changes_is_refused():
    with pytest.raises(mm.Misuse, match=r"'mean' .* changed in training, .*self.register_buffer.'mean'"):
        mm.fit(lambda: Running(False), (X, Y), plan=PLAN)


@pytest.mark.parametrize("engine", ["loop", "threads", "stacked"])
def test_a_buffer_that_is_replaced_in_training_is_kept(engine):
    data = mm.open_data((X, Y))
    plan = replace(PLAN, engine=engine, batch_size=len(data.train), epochs=3, lr=1e-12)
    ensemble = mm.fit(lambda: Running(True), data, plan=plan)
    expected = data.train.prepared.square().mean(0) * (1 - 0.9**3)
    assert expected.min() > 0.1
    for member in range(2):
        assert (ensemble.member(member).mean - expected).abs().max() < 1e-6


def test_constants_and_caches_are_no_state():
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.head = torch.tensor([2.0]), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.last = x.mean()
            return self.head(self.scale * x)

    assert mm.fit(Cached, (X, Y), plan=PLAN).members == 2


class Editing(nn.Module):
    """A network that changes its inputs in place, always or in training alone."""

    def __init__(self, when: str = "always") -> None:
        super().__init__()
        self.when, self.head = when, nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.when == "never":
            return self.head((x - 1.0) / 2.0)
        if self.when == "always":
            return self.head(x.sub_(1.0).div_(2.0))
        return self.head(x.mul_(1.5) if self.training else x)


@pytest.mark.parametrize("engine", ["loop", "stacked", "threads", "threads-stacked"])
def test_networks_that_change_their_inputs_do_so_to_copies(engine):
    data, plan = mm.open_data((X.clone(), Y)), replace(PLAN, engine=engine)
    before = {name: getattr(data, name).prepared.clone() for name in ("train", "val", "test")}
    edited = mm.fit(Editing, data, plan=plan)
    plain = mm.fit(lambda: Editing("never"), data, plan=replace(plan, engine=edited.engine.name))
    inputs = data.test.prepared.clone()
    found = edited.predict(inputs, prepared=True).outputs
    assert torch.equal(inputs, before["test"])
    assert (found - plain.predict(inputs, prepared=True).outputs).abs().max() < 1e-6
    for build in (Editing, lambda: Editing("training"), lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))):
        for recipe in ("deep-ensemble", "forde", "batch-ensemble"):
            mm.fit(build, data, recipe=recipe, plan=replace(plan, epochs=1))
            assert all(torch.equal(getattr(data, name).prepared, tensor) for name, tensor in before.items())


def test_given_networks_that_change_their_inputs_do_so_to_copies():
    nets = [Editing() for _ in range(3)]
    inputs = X.clone()
    found = mm.Ensemble.from_models(nets).predict(inputs).outputs
    assert torch.equal(inputs, X)
    for net, outputs in zip(nets, found, strict=True):
        assert torch.equal(net(X.clone()), outputs)


class FrozenNorm(nn.Module):
    """Batch normalisation that `train()` keeps in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


@pytest.mark.parametrize("engine", ["loop", "threads"])
def test_an_override_of_train_holds_from_the_first_step_on(engine):
    ensemble = mm.fit(FrozenNorm, (X, Y), plan=replace(PLAN, engine=engine))
    assert ensemble.groups[0].population.buffers["norm.num_batches_tracked"].tolist() == [0, 0]
    assert not Structure(FrozenNorm()).train(True).module.norm.training


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.body(x))))


def test_lazy_layers_get_their_shapes_from_the_data(tmp_path: Path):
    own = mm.fit(Lazy, (X, Y), plan=PLAN).groups[0].population.own
    assert own["body.weight"].shape == (2, 8, 6)
    assert not torch.equal(own["body.weight"][0], own["body.weight"][1])
    with pytest.raises(mm.Misuse, match=r"the Lazy given has lazy layers without shapes: write lambda: Lazy\(...\)"):
        mm.fit(Lazy(), (X, Y), plan=PLAN)
    assert mm.fit(Lazy, (X, Y), recipe="bayes", plan=replace(PLAN, members=1), out=tmp_path / "run").members == 1
    assert mm.load(tmp_path / "run", net=Lazy).members == 1


class OptimizedModule(nn.Module):
    """The wrapper of torch.compile, whose import takes seconds."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self._orig_mod = net


def test_a_compiled_network_is_the_plain_one():
    plain = mm.fit(Giving, (X, Y), plan=PLAN)
    compiled = mm.fit(lambda: OptimizedModule(Giving()), (X, Y), plan=PLAN)
    assert torch.equal(compiled.predict(X).outputs, plain.predict(X).outputs)
    assert set(compiled.groups[0].population.own) == set(plain.groups[0].population.own)


def pruned() -> nn.Module:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    prune.l1_unstructured(net[0], "weight", 0.5)
    return net


REFUSED = {
    "scripted": (lambda: torch.jit.script(nn.Linear(6, 3)), "is a torch.jit module: give the nn.Module"),
    "traced": (lambda: torch.jit.trace(nn.Linear(6, 3), X[:2]), "is a torch.jit module: give the nn.Module"),
    "pruned": (pruned, r"'0' \(Linear\) has a weight that a hook computes \(L1Unstructured\): write .*prune.remove"),
    "old weight norm": (lambda: nn.utils.weight_norm(nn.Linear(6, 3)), r"\(WeightNorm\): write .*parametrizations"),
    "double": (lambda: nn.Linear(6, 3).double(), "'weight' of the net is torch.float64, .* write net.float"),
    "bfloat16": (lambda: nn.Linear(6, 3).bfloat16(), "'weight' of the net is torch.bfloat16, .* write net.float"),
}


@pytest.mark.parametrize("recipe", ["deep-ensemble", "bayes"])
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")  # torch's own, of deprecated functions
def test_what_cannot_be_trained_is_refused_in_one_line(name, recipe):
    build, message = REFUSED[name]
    plan = replace(PLAN, members=1)
    for net in (build, build()):
        with pytest.raises(mm.Misuse, match=message) as found:
            mm.fit(net, (X, Y), recipe=recipe, plan=plan)
        assert "\n" not in str(found.value)


def test_the_output_of_a_part_does_not_matter():
    """Coupling in feature space runs body and head one after the other, without the network's own forward."""

    class Parts(Giving):
        def __init__(self) -> None:
            super().__init__("dict")
            self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.head(self.body(x))}

    ensemble = mm.fit(Parts, (X, Y), recipe="feature-rde", plan=PLAN, output="logits")
    assert F.softmax(ensemble.predict(X).outputs, -1).isfinite().all()


def test_whole_numbers_for_an_embedding_are_called_tokens() -> None:
    tokens, y = torch.randint(0, 20, (100, 7)), torch.arange(100) % 3

    def net() -> nn.Module:
        return nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(56, 3))

    with pytest.raises(mm.Misuse, match="write inputs='tokens' for inputs that are whole numbers"):
        mm.fit(net, (tokens, y), members=2, epochs=1)
