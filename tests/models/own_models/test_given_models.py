"""Ensembles of networks trained elsewhere: each model gives its own outputs, survives saving, and is evaluated."""

import types

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import murmuration as mm
from murmuration.cli import main
from murmuration.models.nets.comparison import same_function


def inputs(count: int = 12, width: int = 6) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(0))


class Private(nn.Module):
    """An attribute with a leading underscore scales the outputs."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self._factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self._factor * self.layer(x)


class Hidden(nn.Module):
    """A large tensor that is neither a parameter nor a buffer, and whose repr is abbreviated."""

    def __init__(self, middle: float) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.scale = torch.ones(6, 400)
        self.scale[3, 200] = middle

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.scale[:, 200])


class Bent(nn.Module):
    """A function as an attribute; `slope` is in its closure, or in a partial."""

    def __init__(self, slope: float, partial: bool = False) -> None:
        super().__init__()
        import functools

        self.layer = nn.Linear(6, 3)
        leaky = nn.functional.leaky_relu
        self.act = functools.partial(leaky, negative_slope=slope) if partial else (lambda x: leaky(x, slope))

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.layer(x))


def hooked() -> nn.Module:
    net = mlp()
    net[0].register_forward_hook(lambda module, given, out: 3 * out)
    return net


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def tied(both: bool) -> nn.Module:
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
    if both:
        net[1].weight = net[0].weight
    return net


PAIRS = {
    "private attribute": lambda: [Private(1.0), Private(5.0)],
    "middle of a tensor": lambda: [Hidden(1.0), Hidden(9.0)],
    "closure": lambda: [Bent(0.1), Bent(0.9)],
    "partial": lambda: [Bent(0.1, True), Bent(0.9, True)],
    "forward hook": lambda: [mlp(), hooked()],
    "tied weights": lambda: [tied(True), tied(False)],
    "tied weights last": lambda: [tied(False), tied(True)],
    "other width": lambda: [mlp(), nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))],
    "interleaved": lambda: [mlp(), nn.Linear(6, 3), mlp()],
    "double and single": lambda: [mlp(), mlp().double()],
}


@pytest.mark.parametrize("kind", PAIRS)
def test_every_model_gives_its_own_outputs(kind):
    torch.manual_seed(1)
    nets, x = PAIRS[kind](), inputs()
    ensemble = mm.Ensemble.from_models(nets)
    outputs = ensemble.predict(x).outputs
    assert outputs.dtype == torch.float32
    for mine, net in zip(outputs, nets, strict=True):
        expected = net(x.to(next(net.parameters()).dtype)).float()
        torch.testing.assert_close(mine, expected.detach(), rtol=1e-6, atol=1e-6)
    assert len(ensemble.groups) > 1


@pytest.mark.parametrize(
    "build",
    [
        mlp,
        lambda: Private(2.0),
        lambda: Hidden(2.0),
        lambda: Bent(0.1),
        lambda: Bent(0.1, True),
        lambda: tied(True),
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)), nn.BatchNorm1d(4)),
    ],
)
def test_models_of_one_structure_are_one_group(build):
    assert same_function(build(), build())
    assert len(mm.Ensemble.from_models([build(), build(), build()]).groups) == 1


class Several(nn.Module):
    """Logits among other outputs: in a tuple, a dict or an object."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(6, 3), kind

    def forward(self, x: Tensor) -> object:
        logits, other = self.layer(x), x.sum(1)
        if self.kind == "dict":
            return {"logits": logits, "other": other}
        return (other, logits) if self.kind == "tuple" else types.SimpleNamespace(logits=logits, other=other)


@pytest.mark.parametrize(
    ("kind", "output"), [("tuple", 1), ("dict", "logits"), ("object", "logits"), ("tuple", lambda given: given[1])]
)
def test_one_tensor_is_picked_of_several_outputs(kind, output, tmp_path):
    nets, x = [Several(kind) for _ in range(3)], inputs()
    ensemble = mm.Ensemble.from_models(nets, output=output)
    assert len(ensemble.groups) == 1
    outputs = ensemble.predict(x).outputs
    for mine, net in zip(outputs, nets, strict=True):
        torch.testing.assert_close(mine, net.layer(x).detach(), rtol=1e-6, atol=1e-6)
    assert not isinstance(nets[0](x), Tensor)  # the caller's networks are as they were
    ensemble.save(tmp_path / "run")
    if callable(output):
        with pytest.raises(mm.Misuse, match="output is a function"):
            mm.load(tmp_path / "run", net=nets)
    again = mm.load(tmp_path / "run", net=nets, output=output if callable(output) else None)
    assert torch.equal(again.predict(x).outputs, outputs)
    with pytest.raises(mm.Misuse, match=r"the net gives a .* of .*: write output="):
        mm.Ensemble.from_models(nets).predict(x)


def test_tokens_keep_their_type():
    nets = [nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(12, 3)) for _ in range(2)]
    x = torch.randint(20, (7, 3), generator=torch.Generator().manual_seed(0))
    outputs = mm.Ensemble.from_models(nets).predict(x).outputs
    for mine, net in zip(outputs, nets, strict=True):
        torch.testing.assert_close(mine, net(x).detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_inputs_have_the_precision_of_the_network(dtype):
    """Double inputs reach a double network without passing through single precision."""
    nets = [mlp().to(dtype) for _ in range(2)]
    x = inputs().double() * (1 + 1e-12)
    outputs = mm.Ensemble.from_models(nets).predict(x.numpy()).outputs
    assert outputs.dtype == torch.float32
    for mine, net in zip(outputs, nets, strict=True):
        torch.testing.assert_close(mine, net(x.to(dtype)).detach().float(), rtol=1e-6, atol=1e-6)


def test_misfits_are_refused_in_one_line():
    from_models = mm.Ensemble.from_models
    with pytest.raises(mm.Misuse, match=r"outputs \(12, 3\) and \(12, 4\): expected the same"):
        from_models([nn.Linear(6, 3), nn.Linear(6, 4)]).predict(inputs())
    with pytest.raises(mm.Misuse, match=r"write likelihood=mm.MultiLabel\(K\)"):
        from_models([mlp()], task="multi-label")
    with pytest.raises(mm.Misuse, match=r"shape \(1, 12, 3\): expected \(members, inputs, 4\) for MultiLabel"):
        from_models([mlp()], likelihood=mm.MultiLabel(4)).predict(inputs())
    with pytest.raises(mm.Misuse, match="give a list of networks"):
        from_models(mlp())
    with pytest.raises(mm.Misuse, match="inputs of type dict: expected a tensor"):
        from_models([mlp()]).predict({"a": inputs()})
    with pytest.raises(mm.Misuse, match=r"expected whole numbers \(N,\)"):
        from_models([mlp()]).fit_posthoc(inputs(), np.zeros(12))


def test_one_output_is_a_logit_or_a_mean_and_not_the_only_class():
    nets, x = [nn.Linear(6, 1) for _ in range(2)], inputs()
    advice = r"one output, .*: write likelihood=mm.MultiLabel\(1\) .* likelihood=mm.Gaussian\(noise_std\)"
    for predict in (mm.Ensemble.from_models(nets).predict, mm.Ensemble.from_models(nets).as_module()):
        with pytest.raises(mm.Misuse, match=advice):
            predict(x)
    outputs = torch.stack([net(x) for net in nets]).detach().double()
    labels = mm.Ensemble.from_models(nets, likelihood=mm.MultiLabel(1)).predict(x)
    torch.testing.assert_close(labels.mean, outputs.sigmoid().mean(0), rtol=1e-5, atol=1e-6)
    numbers = mm.Ensemble.from_models(nets, likelihood=mm.Gaussian(0.5)).predict(x)
    torch.testing.assert_close(numbers.mean, outputs.mean(0), rtol=1e-5, atol=1e-6)


def test_labels_and_means_with_spreads():
    x = inputs()
    labels = mm.Ensemble.from_models([mlp(), mlp()], likelihood=mm.MultiLabel(3)).predict(x)
    assert labels.probs.shape == (2, 12, 3)
    assert not torch.allclose(labels.probs.sum(-1), torch.ones(2, 12).double())
    nets = [nn.Sequential(nn.Linear(6, 4), nn.Softplus()) for _ in range(2)]
    found = mm.Ensemble.from_models(nets, likelihood=mm.MeanAndStd(2)).predict(x)
    variances = torch.stack([net(x)[:, 2:].detach().double() ** 2 for net in nets])
    torch.testing.assert_close(found.aleatoric_var, variances.mean(0), rtol=1e-5, atol=1e-6)
    several = mm.Ensemble.from_models([mlp()], task="regression", noise_std=0.5).predict(x)  # three targets
    torch.testing.assert_close(several.aleatoric_var, torch.full((12, 3), 0.25).double())


@pytest.mark.parametrize("as_list", [False, True])
def test_a_saved_ensemble_of_one_architecture_returns(tmp_path, as_list):
    x, y = inputs(80), torch.arange(80) % 3
    ensemble = mm.Ensemble.from_models([mlp(), mlp()]).fit_posthoc(x, y)
    ensemble.save(tmp_path / "run")
    with pytest.raises(mm.Misuse, match="given models of Sequential: give them again as net="):
        mm.load(tmp_path / "run")
    again = mm.load(tmp_path / "run", net=[mlp, mlp] if as_list else mlp())
    assert torch.equal(again.predict(x).outputs, ensemble.predict(x).outputs)
    assert again.posthoc.calibrator == ensemble.posthoc.calibrator
    again.save(tmp_path / "copy")
    assert torch.equal(mm.load(tmp_path / "copy", net=mlp).predict(x).outputs, ensemble.predict(x).outputs)
    with pytest.raises(mm.Misuse, match="another architecture"):
        mm.load(tmp_path / "run", net=nn.Linear(6, 3))


def test_a_saved_ensemble_of_several_architectures_returns(tmp_path):
    x = inputs()
    nets = [Private(1.0), Private(5.0), mlp(), mlp()]
    ensemble = mm.Ensemble.from_models(nets, task="regression", noise_std=2.0)
    ensemble.save(tmp_path / "run")
    for given in ([Private(1.0), Private(5.0), mlp], [Private(1.0), Private(5.0), mlp, mlp]):
        again = mm.load(tmp_path / "run", net=given)
        assert torch.equal(again.predict(x).outputs, ensemble.predict(x).outputs)
        assert again.likelihood == ensemble.likelihood
    with pytest.raises(mm.Misuse, match="a list of 3"):
        mm.load(tmp_path / "run", net=mlp)


def test_the_command_line_says_that_they_are_read_in_python(tmp_path, capsys):
    mm.Ensemble.from_models([mlp()]).save(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run")]) != 0
    assert "holds networks trained elsewhere: read it in Python" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "run"), "two-moons", "--out", str(tmp_path / "p.csv")]) == 2
    assert capsys.readouterr().err.strip().endswith(f"read it in Python, mm.load('{tmp_path / 'run'}', net=...)")


@pytest.fixture
def own_loop_run(tmp_path):
    """An ensemble of `mm.Method`, of a network by name, and a file of examples."""
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    method = mm.Method("mlp", mm.Categorical(2), members=2, inputs=x)
    state = method.init(0)
    method.step(state, x, y)
    method.ensemble(state).save(tmp_path / "run")
    np.savez(tmp_path / "rows.npz", x=x.numpy(), y=y.numpy())
    return tmp_path / "run", tmp_path / "rows.npz", method.ensemble(state).predict(x)


def test_the_command_line_reads_networks_by_name(own_loop_run, tmp_path, capsys):
    run, rows, expected = own_loop_run
    assert main(["predict", str(run), str(rows), "--out", str(tmp_path / "p.npz")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "p.npz")["probs"], expected.mean, rtol=1e-6)
    assert main(["evaluate", str(run), "--on", str(rows)]) == 0
    assert "Accuracy" in capsys.readouterr().out
    assert main(["calibrate", str(run)]) == 2
    assert f"mm.load('{run}'); murmur predict and murmur evaluate {run} --on FILE take it" in capsys.readouterr().err


def test_inputs_that_networks_without_a_preparation_cannot_take(own_loop_run, tmp_path):
    run, rows, _ = own_loop_run
    ensembles = mm.load(run), mm.Ensemble.from_models([nn.Linear(3, 2)])
    x, y = torch.randn(30, 3), torch.arange(30) % 2
    for ensemble in ensembles:
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.bool, torch.complex64):
            name = str(dtype).removeprefix("torch.")
            with pytest.raises(mm.Misuse, match=f"inputs of type {name}: expected floating-point numbers, or int64"):
                ensemble.predict(x.to(dtype))
        with pytest.raises(mm.Misuse, match=r"labelled examples are a Tensor of shape \(30, 3\): expected a pair"):
            ensemble.fit_posthoc(x)
        assert ensemble.fit_posthoc((x, y)).posthoc == ensemble.fit_posthoc(x, y).posthoc
        assert ensemble.fit_posthoc(rows).posthoc is not None
        (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n")
        with pytest.raises(mm.Misuse, match=r"t.csv holds no array of inputs, and .*: give a .npz file"):
            ensemble.predict(tmp_path / "t.csv")
    for wrong in (x[:, :2], x[0], x[:, None]):
        with pytest.raises(mm.Misuse, match=r"of shape|have the shape"):
            ensembles[0].predict(wrong)


def test_token_networks_take_int64():
    net = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
    assert mm.Ensemble.from_models([net]).predict(torch.randint(10, (5, 3))).outputs.shape == (1, 5, 2)


def test_a_plain_tensor_that_differs_is_noticed(tmp_path):
    mm.Ensemble.from_models([Hidden(2.0), Hidden(2.0)]).save(tmp_path / "run")
    mm.load(tmp_path / "run", net=lambda: Hidden(2.0))
    with pytest.raises(mm.Misuse, match="'scale' of the net differs from that of the run"):
        mm.load(tmp_path / "run", net=lambda: Hidden(3.0))


def test_a_network_that_edits_its_inputs_leaves_the_callers_alone():
    class Editing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.sub_(1.0).div_(2.0))

    nets, x = [Editing() for _ in range(3)], inputs()
    outputs = mm.Ensemble.from_models(nets).predict(x).outputs
    assert torch.equal(x, inputs())
    for mine, net in zip(outputs, nets, strict=True):
        torch.testing.assert_close(mine, net(inputs()).detach(), rtol=1e-6, atol=1e-6)


def test_a_compiled_network_counts_as_the_network_and_a_script_is_refused():
    net, x = mlp(), inputs()
    made = mm.Ensemble.from_models([torch.compile(net, backend="eager"), mlp()])
    torch.testing.assert_close(made.predict(x).outputs[0], net(x).detach(), rtol=1e-6, atol=1e-6)
    with pytest.raises(mm.Misuse, match="is a torch"):
        mm.Ensemble.from_models([torch.jit.script(mlp())])


def test_given_models_are_evaluated_on_pairs_and_reported(tmp_path, moons):
    x, y = moons.test.prepared, moons.test.y
    nets = [mm.fit("mlp", moons, members=1, epochs=1, seed=i, posthoc=None, engine="loop").member(0) for i in range(2)]
    ensemble = mm.Ensemble.from_models(nets).fit_posthoc(moons.val)
    found = mm.evaluate(ensemble, (x.numpy(), y.numpy()), out=tmp_path / "report")
    assert (tmp_path / "report" / "report.html").exists()
    whole = mm.evaluate(ensemble, moons)  # of a Data, the prepared inputs
    assert float(found.scores["accuracy"]) == float(whole.scores["accuracy"])
    assert torch.equal(ensemble.predict(moons.test).outputs, ensemble.predict(x).outputs)
    line = mm.Ensemble.from_models([nn.Linear(2, 1) for _ in range(2)], task="regression")
    assert np.isfinite(float(mm.evaluate(line, (x, x[:, 0])).scores["nll"]))
