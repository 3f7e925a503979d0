"""The grammar of couplings, and the numbers that its words stand for."""

import math
from dataclasses import fields

import pytest

from murmuration.coupling import COUPLINGS, Repulsion, coupling_named
from murmuration.coupling.repelling import Coupling
from murmuration.coupling.spaces import WeightSpace
from murmuration.errors import Misuse
from murmuration.recipe import PRESETS, recipe, recipe_from_json
from murmuration.written import split_settings

WRITTEN = [
    ("weights", Repulsion("weights", bandwidth="rde")),
    ("weights:estimator=svgd,weight=0.5", Repulsion("weights", "svgd", "rde", weight="0.5")),
    ("outputs:of=logits,prior=cauchy:1e-6", Repulsion("outputs", bandwidth="rde", of="logits", prior="cauchy:1e-6")),
    ("outputs: every=4 , share=0.25", Repulsion("outputs", bandwidth="rde", every=4, share=0.25)),
    (
        "features:directions=smallest,projection=2",
        Repulsion("features", "kde", "code", "1/B", prior="cauchy:5e-3", directions="smallest", projection=2),
    ),
    (
        "input-gradients:lengthscales=tuned,alpha=0.4,form=poster,rank=9,centred=yes,bandwidth=fixed:0.5",
        Repulsion(
            "input-gradients",
            "kde",
            "fixed:0.5",
            "1/B",
            lengthscales="tuned",
            alpha="0.4",
            form="poster",
            rank=9,
            centred="yes",
        ),
    ),
    (
        "weights:schedule=steps:80=0.1,120=0.01,drive=cyclic:100,4,every=2",  # commas and signs of their own
        Repulsion("weights", bandwidth="rde", schedule="steps:80=0.1,120=0.01", drive="cyclic:100,4", every=2),
    ),
]


def written_out(settings: Repulsion) -> str:
    """Every setting by name."""
    pairs = [(field.name, getattr(settings, field.name)) for field in fields(settings) if field.name != "space"]
    return f"{settings.space}:" + ",".join(f"{name}={value}" for name, value in pairs)


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_what_is_written_is_what_is_meant(text: str, expected: Repulsion):
    assert coupling_named(text) == expected
    assert coupling_named(written_out(expected)) == expected


@pytest.mark.parametrize("preset", PRESETS)
def test_couplings_of_presets_survive_json(preset: str):
    chosen = recipe(preset)
    again = recipe_from_json(chosen.to_json())
    assert again.repulsion == chosen.repulsion
    if chosen.repulsion is not None:
        assert coupling_named(written_out(chosen.repulsion)) == chosen.repulsion


def test_only_a_name_and_a_sign_begin_a_new_setting():
    assert split_settings("a=1,2,b=3=4,5=6") == ["a=1,2", "b=3=4,5=6"]
    assert coupling_named("none") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wieghts", "unknown answer to --coupling 'wieghts': did you mean 'weights'?"),
        ("none:every=2", "coupling 'none:every=2': none has no settings; write none"),
        ("weights:evry=2", "unknown setting of a coupling (name=value) 'evry': did you mean 'every'?"),
        ("weights:every", "unknown setting of a coupling (name=value) 'every'"),
        ("weights:space=outputs", "unknown setting of a coupling (name=value) 'space'"),
        ("weights:every=2.5", "coupling setting every=2.5: expected a whole number"),
        ("outputs:share=half", "coupling setting share=half: expected a number"),
        ("weights:every=2,every=3", "coupling 'weights:every=2,every=3': every is given twice"),
        ("weights:every=0", "every=0, rank=128, projection=5: need at least 1 each"),
        ("outputs:share=0", "share=0.0: need a share of the batch above 0, at most 1"),
        ("outputs:share=1.5", "share=1.5: need a share of the batch above 0, at most 1"),
        ("weights:share=0.5", "share=0.5 in the space weights: it is for outputs, features, input-gradients"),
        ("outputs:lengthscales=pca", "lengthscales=pca in the space outputs: it is for input-gradients"),
        ("input-gradients:projection=3", "projection=3 in the space input-gradients: it is for features"),
        ("input-gradients:alpha=0.4", "alpha=0.4 with lengthscales=identity: write lengthscales=tuned too"),
        ("input-gradients:lengthscales=tuned,alpha=2", "alpha=2: need a number from 0 to 1, or auto"),
        ("input-gradients:lengthscales=tuned,alpha=nan", "alpha=nan: need a number from 0 to 1, or auto"),
        ("input-gradients:lengthscales=tuned,alpha=low", "alpha is 'low': expected a number"),
        ("input-gradients:lengthscales=pac", "unknown lengthscales 'pac': did you mean 'pca'?"),
        ("input-gradients:form=book", "unknown form 'book'"),
        ("input-gradients:of=probs", "unknown what input-gradients can show 'probs': "),
        ("weights:of=logits", "unknown what weights can show 'logits': "),
        ("outputs:estimator=svgd", "estimator=svgd in the space outputs: it mixes weights' gradients; write weights"),
        ("weights:estimator=kd", "unknown estimator 'kd': did you mean 'kde'?"),
        ("weights:bandwidth=al", "unknown bandwidth 'al': did you mean 'all'?"),
        ("weights:weight=1/M", "weight is '1/M': expected a number"),
        ("weights:weight=-1", "weight=-1: need 1/B, 1/N or a number that is not negative"),
        ("weights:weight=inf", "weight=inf: need 1/B, 1/N or a number that is not negative"),
        ("weights:schedule=cosin", "unknown schedule 'cosin': did you mean 'cosine'?"),
        ("weights:drive=linar:5", "unknown drive 'linar': did you mean 'linear'?"),
        ("weights:drive=linear", "the steps of drive is '': expected a number"),
        ("weights:drive=hyper:-5", "drive=hyper:-5: write constant, linear:T, hyper:T or cyclic:T,5"),
        ("weights:drive=linear:nan", "drive=linear:nan: write constant, linear:T"),
        ("weights:drive=linear:5,2", "drive=linear:5,2: write constant, linear:T"),
        ("weights:drive=constant:3", "drive=constant:3: write constant, linear:T"),
        ("outputs:prior=laplace:1", "unknown prior 'laplace'"),
        ("outputs:prior=gaussian", "the scale of prior is '': expected a number"),
        ("outputs:prior=gaussian:-1", "prior=gaussian:-1: need a positive scale, such as gaussian:0.005"),
        ("weights:prior=gaussian:1", "prior=gaussian:1 in the space weights: outputs and features can have one"),
        ("features:prior=weights:1", "prior=weights:1 in the space features: it is one of functions"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        coupling_named(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_space_must_be_known():
    with pytest.raises(Misuse, match="unknown space 'weight': did you mean 'weights'"):
        Repulsion("weight")


@pytest.mark.parametrize(("weight", "expected"), [("1/B", 1 / 32), ("1/N", 1 / 1000), ("0.25", 0.25), ("0", 0.0)])
def test_weights_beside_the_mean_loss(weight: str, expected: float):
    assert Repulsion("weights", weight=weight).weight_of(batch=32, examples=1000) == expected


def test_published_methods_weigh_as_their_code_does():
    """FoRDE and feature-RDE divide by the batch, RDE by the examples."""
    found = {name: None if each is None else each.weight for name, each in COUPLINGS.items()}
    assert found == {"none": None, "weights": "1/N", "outputs": "1/N", "features": "1/B", "input-gradients": "1/B"}


@pytest.mark.parametrize(
    ("drive", "values"),
    [
        ("constant", {0: 1.0, 7: 1.0}),
        ("linear:4", {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 100: 1.0}),
        ("hyper:10", {0: math.tanh(0.13**10), 6: math.tanh(0.91**10), 9: 1.0, 10: 1.0}),
        ("cyclic:20,5", {0: 0.25**10, 1: 0.5**10, 3: 1.0, 4: 0.25**10, 7: 1.0, 19: 1.0, 20: 1.0}),
        ("cyclic:49,7", {6: 1.0, 13: 1.0, 20: 1.0, 27: 1.0, 7: 7**-10, 48: 1.0}),
        ("cyclic:10", {1: 1.0, 2: 0.5**10, 9: 1.0}),  # five cycles, unless told
    ],
)
def test_annealing_of_the_driving_force(drive: str, values: dict[int, float]):
    settings = Repulsion("weights", drive=drive)
    assert {step: settings.drive_at(step) for step in values} == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        ("none", ("none", 0.0)),
        ("cauchy:1e-6", ("cauchy", 1e-6)),
        ("gaussian:2", ("gaussian", 2.0)),
        ("weights:0.3", ("weights", 0.3)),
    ],
)
def test_priors(prior: str, expected: tuple[str, float]):
    assert Repulsion("outputs", prior=prior).prior_of() == expected


def test_rare_meetings_count_for_the_steps_between_and_follow_the_schedule():
    settings = Repulsion("weights", every=3, schedule="steps:2=0.1", drive="linear:10")
    coupling = Coupling(settings, WeightSpace(settings), weight=0.5, steps_per_epoch=6, epochs=4)
    assert [step for step in range(10) if coupling.due(step)] == [0, 3, 6, 9]
    assert [coupling.strength(step) for step in (0, 11, 12, 23)] == pytest.approx([1.5, 1.5, 0.15, 0.15])
    assert coupling.drive(4) == 0.5
