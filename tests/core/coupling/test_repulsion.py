"""The grammar of couplings, and the numbers that its words stand for."""

import math

import pytest

from murmuration.core.coupling import (
    COUPLINGS,
    Coupling,
    FeatureSpace,
    InputGradientSpace,
    OutputPrior,
    OutputSpace,
    Repulsion,
    WeightSpace,
)
from murmuration.core.coupling.repulsion import Annealing
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe, recipe_from_json
from murmuration.system.errors import Misuse
from murmuration.system.option_text import format_text, parse

WRITTEN = [
    ("weights", Repulsion(WeightSpace(bandwidth="rde"))),
    ("weights:estimator=svgd,weight=0.5", Repulsion(WeightSpace("svgd", "rde"), weight=0.5)),
    (
        "outputs:of=logits,prior=cauchy:1e-6",
        Repulsion(OutputSpace(bandwidth="rde", of="logits", prior=OutputPrior("cauchy", 1e-6))),
    ),
    ("outputs: every=4 , batch_fraction=0.25", Repulsion(OutputSpace(bandwidth="rde", batch_fraction=0.25), every=4)),
    (
        "features:directions=smallest,projection=2",
        Repulsion(
            FeatureSpace("kde", "code", prior=OutputPrior("cauchy", 5e-3), directions="smallest", projection=2), "1/B"
        ),
    ),
    (
        "input-gradients:lengthscales=tuned,alpha=0.4,form=poster,rank=9,centred=yes,bandwidth=fixed:0.5",
        Repulsion(
            InputGradientSpace(
                "kde", "fixed:0.5", lengthscales="tuned", alpha=0.4, form="poster", rank=9, centred=True
            ),
            "1/B",
        ),
    ),
    (
        "weights:schedule=steps:80=0.1,120=0.01,loss_scale=cyclic:100,4,every=2",  # commas and signs of their own
        Repulsion(
            WeightSpace(bandwidth="rde"),
            schedule="steps:80=0.1,120=0.01",
            loss_scale=Annealing("cyclic", 100.0, 4.0),
            every=2,
        ),
    ),
]


def coupling(text: str) -> Repulsion | None:
    return parse(text, "coupling", COUPLINGS)


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_what_is_written_is_what_is_meant(text: str, expected: Repulsion):
    assert coupling(text) == expected
    assert coupling(format_text(expected, COUPLINGS)) == expected


@pytest.mark.parametrize("preset", PRESETS)
def test_recipes_of_presets_survive_json(preset: str):
    chosen = make_recipe(preset)
    assert recipe_from_json(chosen.to_json()) == chosen


def test_an_answer_of_another_package_is_named():
    record = make_recipe("deep-ensemble").to_json() | {"coupling": "mylogits:every=2"}
    with pytest.raises(Misuse, match="coupling 'mylogits' of this run is unknown here: import the package that"):
        recipe_from_json(record)


def test_no_coupling_is_none():
    assert coupling("none") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wieghts", "unknown answer to --coupling 'wieghts': did you mean 'weights'?"),
        ("none:every=2", "coupling 'none:every=2': none has no settings; write none"),
        ("weights:evry=2", "unknown setting of a coupling (name=value) 'evry': did you mean 'every'?"),
        ("weights:every", "unknown setting of a coupling (name=value) 'every'"),
        ("weights:space=outputs", "unknown setting of a coupling (name=value) 'space'"),
        ("weights:every=2.5", "coupling setting every=2.5: expected a whole number"),
        ("outputs:batch_fraction=half", "coupling setting batch_fraction=half: expected a number"),
        ("weights:every=2,every=3", "coupling 'weights:every=2,every=3': every is given twice"),
        ("weights:every=0", "every=0: need at least 1"),
        (
            "weights:estimator=svgd,every=2",
            "every=2 with estimator=svgd: it mixes the loss gradients of all members at every step; write every=1",
        ),
        ("outputs:batch_fraction=0", "batch_fraction=0.0: need a fraction of the batch above 0, at most 1"),
        ("outputs:batch_fraction=1.5", "batch_fraction=1.5: need a fraction of the batch above 0, at most 1"),
        ("weights:batch_fraction=0.5", "unknown setting of a coupling (name=value) 'batch_fraction'"),
        ("outputs:lengthscales=pca", "unknown setting of a coupling (name=value) 'lengthscales'"),
        ("input-gradients:projection=3", "unknown setting of a coupling (name=value) 'projection'"),
        ("input-gradients:alpha=0.4", "alpha=0.4 with lengthscales=identity: write lengthscales=tuned too"),
        ("input-gradients:lengthscales=tuned,alpha=2", "alpha=2.0: need a number from 0 to 1, or auto"),
        ("input-gradients:lengthscales=tuned,alpha=nan", "alpha=nan: need a number from 0 to 1, or auto"),
        ("input-gradients:lengthscales=tuned,alpha=low", "alpha=low: need a number from 0 to 1, or auto"),
        ("input-gradients:lengthscales=pac", "unknown lengthscales 'pac': did you mean 'pca'?"),
        ("input-gradients:form=book", "unknown form 'book'"),
        ("input-gradients:of=probs", "unknown of 'probs'"),
        ("weights:of=logits", "unknown setting of a coupling (name=value) 'of'"),
        (
            "outputs:estimator=svgd",
            "estimator=svgd in OutputSpace: it mixes the gradients of weights; write coupling weights",
        ),
        ("weights:estimator=kd", "unknown estimator 'kd': did you mean 'kde'?"),
        ("weights:bandwidth=al", "unknown bandwidth 'al': did you mean 'all'?"),
        ("weights:weight=1/M", "weight=1/M: need 1/B, 1/N or a number that is not negative"),
        ("weights:weight=-1", "weight=-1.0: need 1/B, 1/N or a number that is not negative"),
        ("weights:weight=inf", "weight=inf: need 1/B, 1/N or a number that is not negative"),
        ("weights:schedule=cosin", "unknown schedule 'cosin': did you mean 'cosine'?"),
        ("weights:loss_scale=linar:5", "unknown loss_scale 'linar': did you mean 'linear'?"),
        ("weights:loss_scale=linear", "the steps of loss_scale is '': expected a number"),
        ("weights:loss_scale=hyper:-5", "loss_scale=hyper:-5: write constant, linear:T, hyper:T or cyclic:T,5"),
        ("weights:loss_scale=linear:nan", "loss_scale=linear:nan: write constant, linear:T"),
        ("weights:loss_scale=linear:5,2", "loss_scale=linear:5,2: write constant, linear:T"),
        ("weights:loss_scale=constant:3", "loss_scale=constant:3: write constant, linear:T"),
        ("outputs:prior=laplace:1", "unknown prior 'laplace'"),
        ("outputs:prior=gaussian", "the scale of prior is '': expected a number"),
        ("outputs:prior=gaussian:-1", "prior=gaussian:-1: need a positive scale, such as gaussian:0.005"),
        ("weights:prior=gaussian:1", "unknown setting of a coupling (name=value) 'prior'"),
        ("features:prior=weights:1", "prior=weights:1 in the feature space: it is a prior of functions"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text: str, message: str):
    with pytest.raises(Misuse) as caught:
        coupling(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("weight", "expected"), [("1/B", 1 / 32), ("1/N", 1 / 1000), (0.25, 0.25), (0.0, 0.0)])
def test_weights_beside_the_mean_loss(weight: float | str, expected: float):
    assert Repulsion(WeightSpace(), weight=weight).weight_for(batch=32, examples=1000) == expected


def test_published_methods_weigh_as_their_code_does():
    """FoRDE and feature-RDE divide by the batch, RDE by the examples, RIDE multiplies by 0.2."""
    found = {name: None if row.value is None else row.value.weight for name, row in COUPLINGS.items()}
    published = {"none": None, "weights": "1/N", "outputs": "1/N", "features": "1/B", "input-gradients": "1/B"}
    assert found == published | {"divergence": 0.2}


@pytest.mark.parametrize(
    ("annealing", "values"),
    [
        ("constant", {0: 1.0, 7: 1.0}),
        ("linear:4", {0: 0.25, 1: 0.5, 2: 0.75, 3: 1.0, 100: 1.0}),
        ("hyper:10", {0: math.tanh(0.13**10), 6: math.tanh(0.91**10), 9: 1.0, 10: 1.0}),
        ("cyclic:20,5", {0: 0.25**10, 1: 0.5**10, 3: 1.0, 4: 0.25**10, 7: 1.0, 19: 1.0, 20: 1.0}),
        ("cyclic:49,7", {6: 1.0, 13: 1.0, 20: 1.0, 27: 1.0, 7: 7**-10, 48: 1.0}),
        ("cyclic:10", {1: 1.0, 2: 0.5**10, 9: 1.0}),  # five cycles, unless told
    ],
)
def test_annealing_of_the_loss(annealing: str, values: dict[int, float]):
    scale = Annealing.parse(annealing)
    assert Annealing.parse(str(scale)) == scale
    assert {step: scale(step) for step in values} == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", OutputPrior()),
        ("cauchy:1e-6", OutputPrior("cauchy", 1e-6)),
        ("gaussian:2", OutputPrior("gaussian", 2.0)),
        ("weights:0.3", OutputPrior("weights", 0.3)),
    ],
)
def test_priors(text: str, expected: OutputPrior):
    assert OutputPrior.parse(text) == expected
    assert OutputPrior.parse(str(expected)) == expected


def test_a_rare_repulsion_counts_for_the_steps_between_and_follows_the_schedule():
    settings = Repulsion(WeightSpace(), every=3, schedule="steps:2=0.1", loss_scale=Annealing("linear", 10))
    made = Coupling(settings, settings.space, weight=0.5, steps_per_epoch=6, epochs=4)
    assert [step for step in range(10) if made.due(step)] == [0, 3, 6, 9]
    assert [made.strength(step) for step in (0, 11, 12, 23)] == pytest.approx([1.5, 1.5, 0.15, 0.15])
    assert made.loss_scale(4) == 0.5
