"""Studies before training describe the network that `fit` trains."""

import pytest
from training_requests import REQUESTS, record

import murmuration as mm
from murmuration.data import Data
from murmuration.studies.kernels import planned_spec, spec_of
from murmuration.training.resolve import resolve

PLANNED = {"net", "recipe", "members", "seed"}  # what `planned_spec` takes


@pytest.mark.parametrize("name", [name for name, (source, given) in REQUESTS.items() if set(given) <= PLANNED])
def test_a_planned_spec_is_what_fit_resolves(name: str):
    if "mixed" in name:
        pytest.skip("members that are not networks have no kernels")
    source, settings = REQUESTS[name]
    data, net = mm.open_data(source), settings.get("net")
    others = {key: value for key, value in settings.items() if key in ("members", "seed")}
    recipe = settings.get("recipe", "deep-ensemble")
    planned = planned_spec(net, data, recipe=recipe, **others)
    assert record(planned) == record(resolve(net, data, recipe, None, others).spec()[0])


def test_an_ldam_run_is_opened_again_with_its_cosine_head(digits: Data):
    ensemble = mm.fit("small-cnn", digits, recipe="batch-ensemble", likelihood="ldam:scale=1", members=2, epochs=1)
    single = mm.fit("small-cnn", digits, likelihood="ldam", members=2, epochs=1, posthoc=None)
    for trained in (ensemble, single):
        again = spec_of(trained, digits).member(0)
        assert [type(module).__name__ for module in again.modules()] == [
            type(module).__name__ for module in trained.groups[0].module.modules()
        ]
    assert "CosineLinear" in str(single.groups[0].module)
