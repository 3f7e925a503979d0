"""Networks as users write them: every preset trains all of the network, or refuses it in one line.

The full table, on all engines, is made by `contract.py`; here every network and preset takes turns, and the engines are
compared for one preset of each kind.
"""

import pytest
from contract import cell
from networks import NETWORKS, OTHERS, Network

from murmuration.core.presets import PRESETS

COMPARED = ("deep-ensemble", "batch-ensemble", "forde")  # on all engines: own weights, shared ones, a coupling


@pytest.fixture(autouse=True)
def _few_alphas(monkeypatch):
    monkeypatch.setattr("murmuration.core.coupling.input_gradients.ALPHAS", (0.0, 0.4))
    monkeypatch.setattr("murmuration.training.tuning.SEVERITIES", (3,))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_preset_trains_the_whole_network_or_refuses_it(name):
    check(NETWORKS[name])


@pytest.mark.parametrize(("library", "name"), [(key, name) for key, nets in OTHERS.items() for name in nets])
def test_every_preset_trains_networks_of_other_libraries_or_refuses_them(library, name):
    try:
        __import__(library)
    except Exception as error:  # not installed, or a torchvision of another build
        pytest.skip(f"{library} cannot be imported: {error}")
    check(OTHERS[library][name])


def check(net: Network) -> None:
    cells = {
        preset: cell(net, preset, ("stacked", "threads") if preset in COMPARED else (), reload=preset == "single")
        for preset in PRESETS
    }
    flagged = {preset: each for preset, each in cells.items() if each.status in "DES"}
    assert {preset: f"{each.status} {each.reason}" for preset, each in flagged.items()} == {}
