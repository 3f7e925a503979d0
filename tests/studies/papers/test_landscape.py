"""The reproduction of the loss-landscape paper: verdicts from records, plans, and small runs of the whole."""

import json
import math
import re
import shlex
import warnings
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from check_report import report_check

from murmuration.studies.commands.reproduce import LISTS
from murmuration.studies.papers import OPTIONS, reproduce
from murmuration.studies.papers.landscape.chains import BETWEEN, VANILLA, WITHIN, chains_of
from murmuration.studies.papers.landscape.claims import CLAIMS, verdicts
from murmuration.studies.papers.landscape.published import SVHN, WORK
from murmuration.studies.papers.landscape.settings import (
    NAMES,
    PARTS,
    PLANS,
    PROFILES,
    Setting,
    chosen_setting,
    differences,
)
from murmuration.studies.verdicts import Estimate, Verdict
from murmuration.system.errors import Misuse
from murmuration.system.records import plain_json


def silent(text, done, total):
    pass


def part(*judged: Verdict) -> dict:
    return {"verdicts": plain_json(judged)}


def estimate(low: float, high: float) -> Estimate:
    return Estimate("gap", (low + high) / 2, low, high, 0.0, math.inf, "5 runs")


def word_of(parts: dict, name: str) -> str:
    return next(verdict.word for verdict in verdicts(parts) if verdict.name == name)


def test_a_part_that_was_not_run_is_said_so():
    assert {verdict.word for verdict in verdicts({})} == {"not run"}
    assert {claim.part for claim in CLAIMS} == set(PARTS)


def test_a_record_without_intervals_decides_nothing():
    old = {"plane": {"verdicts": [{"claim": "radial movement outward", "holds": True, "sentence": "a."}]}}
    verdict = next(verdict for verdict in verdicts(old) if verdict.name == "radial")
    assert (verdict.word, verdict.note) == ("cannot tell", "the record has no interval")


def test_a_part_that_ran_without_a_claim_says_that_it_could_not_be_decided():
    good = Verdict("size", "", (estimate(1, 2),))
    verdict = next(verdict for verdict in verdicts({"sizes": part(good)}) if verdict.name == "out of distribution")
    assert (verdict.word, verdict.note) == ("cannot tell", "these runs do not have what it needs")


def test_all_estimates_of_a_claim_count():
    good, bad = (Verdict("out of distribution", "", (estimate(*ends),)) for ends in ((1, 2), (-2, -1)))
    assert word_of({"sizes": part(good, good)}, "out of distribution") == "holds"
    assert word_of({"sizes": part(good, bad)}, "out of distribution") == "does not hold"
    judged = verdicts({"sizes": part(good)})
    verdict = next(verdict for verdict in judged if verdict.name == "out of distribution")
    assert "0.384" in verdict.published
    assert verdict.source == "section 5"


def test_every_figure_has_claims_commands_and_needs():
    names = {claim.name for claim in CLAIMS}
    assert {name for item in WORK.items for name in item.claims} <= names
    assert names == {name for item in WORK.items for name in item.claims}
    figures = {"2a", "2b", "2c", "3", "4", "5", "6", "7a", "7b", "8", "9", "10", "S1", "S2", "S3", "S4", "S5", "S6"}
    assert {item.name for item in WORK.items} == {f"figure {figure}" for figure in figures} | {"section 5"}
    assert all(item.command and item.full_scale and item.needs for item in WORK.items)
    assert WORK.number("section 5", "independent", "Jensen-Shannon divergence on SVHN").value == SVHN["independent"]


def test_pairs_of_runs_of_chains_and_of_cycles():
    y = torch.arange(60) % 3
    generator = torch.Generator().manual_seed(0)
    runs, samples = (torch.randint(3, (count, 60), generator=generator) for count in (4, 6))
    origins = [0, 0, 1, 1, 2, 2]
    found = chains_of(runs, samples, y, origins, chains=3, cycles=2)

    def diversity(one, two):
        apart = (one != two).double().mean().item()
        return sum(apart / (labels != y).double().mean().item() for labels in (one, two)) / 2

    pairs = found.pairs
    assert {name: len(values) for name, values in pairs.items()} == {VANILLA: 6, BETWEEN: 6, WITHIN: 3}
    assert pairs[VANILLA][0] == pytest.approx(diversity(runs[0], runs[1]))
    assert pairs[BETWEEN][1] == pytest.approx(diversity(samples[1], samples[3]))  # chains 0 and 1, second cycle
    assert pairs[WITHIN][2] == pytest.approx(diversity(samples[4], samples[5]))
    (verdict,) = found.verdicts
    vanilla, between = verdict.estimates
    assert vanilla.value == pytest.approx(np.mean(pairs[VANILLA]) - np.mean(pairs[WITHIN]))
    assert vanilla.over == "4 runs and 3 chains and 60 examples"
    assert between.value == pytest.approx(np.mean(pairs[BETWEEN]) - np.mean(pairs[WITHIN]))


def test_cycles_that_are_one_function_are_less_diverse_than_runs():
    y = torch.arange(300) % 3
    generator = torch.Generator().manual_seed(0)
    runs, ends = (torch.randint(3, (count, 300), generator=generator) for count in (4, 3))
    found = chains_of(runs, ends.repeat_interleave(2, 0), y, [0, 0, 1, 1, 2, 2], chains=3, cycles=2)
    assert found.verdicts[0].word == "holds"
    swapped = chains_of(ends[:1].expand(4, 300), torch.cat([runs, ends[:2]]), y, [0, 0, 1, 1, 2, 2], 3, 2)
    assert swapped.verdicts[0].word == "does not hold"


def test_the_published_plan_stands_for_network_and_data():
    setting, line = chosen_setting({"net": "resnet20", "data": "somewhere/cifar-10-batches-bin"})
    plan = setting.plan()
    assert (plan.epochs, plan.batch_size, plan.lr, plan.schedule) == (200, 32, 1e-3, "keras-resnet")
    assert plan.augment == ("shift", "flip")
    assert line.startswith("published plan of resnet20 on somewhere/cifar-10-batches-bin: adam, batches of 32")
    assert "differs" not in line
    hundred, _ = chosen_setting({"net": "resnet20", "data": "hf:uoft-cs/cifar100"})
    assert (hundred.plan().schedule, hundred.plan().batch_size) == ("cifar100-resnet", 128)
    image, _ = chosen_setting({"net": "resnet50", "data": "imagenet"})
    assert (image.plan().optimizer, image.plan().momentum, image.plan().lr) == ("sgd", 0.9, 0.15)
    assert (image.plan().batch_size, image.plan().epochs, image.plan().schedule) == (256, 160, "imagenet-resnet")
    chains, _ = chosen_setting({"net": "resnet18", "data": "cifar-10-batches-bin"})
    plan = chains.chain_plan()
    assert (plan.members, plan.epochs, plan.batch_size, plan.weight_decay) == (3, 150, 64, 5e-4)
    assert plan.lr * 20 == 0.5  # the dynamics multiplies it


def test_contradictions_to_the_plan_are_announced():
    setting, line = chosen_setting(
        {"net": "medium-cnn", "data": "cifar-10-batches-bin", "epochs": 8, "optimizer": "sgd"}
    )
    assert setting.plan().epochs == 8
    assert "differs: epochs 8 (published 40), learning rate 0.02 (published 0.0016), optimizer sgd" in line
    paper, _ = chosen_setting({"profile": "paper", "optimizer": "sgd"})
    assert (paper.prepare, paper.lr) == ("unit", 0.02)  # on raw pixels SGD diverges
    assert differences(paper)["pixels"] == ("0 to 1", "0 to 255")
    with pytest.raises(Misuse, match="write --prepare unit"):
        chosen_setting({"optimizer": "sgd", "prepare": "none"})
    _, line = chosen_setting({})
    assert line.startswith("no plan is published for small-cnn on digits")


def test_the_profile_paper_has_the_papers_constants():
    paper = PROFILES["paper"]
    assert paper.net == "medium-cnn"
    assert (paper.severities, paper.examples, len(paper.rates)) == ((1, 2, 3, 4, 5), 10_000, 4)
    assert chosen_setting({"profile": "paper"})[0] == replace(paper, schedule="halve:10")
    assert set(differences(chosen_setting({"profile": "paper"})[0])) == {
        *("validation images", "corrupted images", "images of each analysis", "plane, tunnel, factorial"),
        "chains of cSG-MCMC",
    }


def test_every_difference_between_the_profiles_is_listed():
    laptop, paper = PROFILES["laptop"], PROFILES["paper"]
    listed = differences(laptop)
    for item in fields(Setting):
        if getattr(laptop, item.name) != getattr(paper, item.name):
            assert NAMES[item.name] in listed
    for words in ("rank 4", "0.65", "1, 2, 3, 4, 5", "0 to 255", "10000", "medium-cnn"):
        assert any(words in theirs for _, theirs in listed.values())
    assert "corrupted images" not in differences(replace(laptop, cifar_c="folder"))


def test_the_plan_is_the_papers():
    plan = Setting().plan()
    assert (plan.epochs, plan.batch_size, plan.lr, plan.schedule) == (40, 128, 1.6e-3, "halve:10")
    assert all(name in {field.name for field in fields(Setting)} for plan in PLANS.values() for name in plan)


SMALL = {"data": "two-moons", "prepare": "standardise", "epochs": 4, "net": "mlp", "members": 3, "examples": 40}


def run(options: dict, out: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reproduce("landscape", options, out, silent, "murmur reproduce landscape")


def test_a_small_reproduction_continues_and_judges(tmp_path):
    outcome = run(SMALL | {"parts": ("similarity", "chains")}, tmp_path / "lab")
    (tmp_path / "page.html").write_text(outcome.page)
    assert report_check(tmp_path / "page.html") == []
    assert "Differences from the paper" in outcome.page
    assert "murmur reproduce landscape --profile paper" in outcome.page
    record = json.loads((tmp_path / "lab" / "record.json").read_text())
    assert set(record["parts"]) == {"similarity", "chains"}
    words = {each["name"]: each["verdict"] for each in record["verdicts"]}
    assert words["plane" if "plane" in words else "radial"] == "not run"
    assert words["orthogonal"] != "not run"
    chains = next(each for each in record["verdicts"] if each["name"] == "chains")
    assert chains["estimates"][0]["over"] == "3 runs and 3 chains and 40 examples"
    again = run(SMALL | {"parts": ("similarity",)}, tmp_path / "lab")
    assert again.record["parts"]["similarity"] == record["parts"]["similarity"]
    assert "chains" in again.record["parts"]  # what is there stays
    with pytest.raises(Misuse, match="made with epochs=4, not 5"):
        run(SMALL | {"epochs": 5}, tmp_path / "lab")


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"parts": ("planes",)}, "unknown part 'planes'"),
        ({"members": 1}, "members=1"),
        ({"widths": (1.0,)}, "--widths .*: this experiment does not use it; it takes --cifar-c"),
        ({"data": "diabetes", "prepare": "standardise"}, "is a regression"),
        ({"optimizer": "rmsprop", **SMALL}, "rmsprop"),
        ({**SMALL, "data": "nowhere"}, "nowhere"),
        ({**SMALL, "ood": "nothing.npz"}, "nothing.npz"),
        ({**SMALL, "data": "digits", "prepare": "unit", "net": "small-cnn", "cifar_c": "no-folder"}, "no-folder"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, request_, told):
    with pytest.raises(Misuse, match=told):
        run(request_, tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> dict[str, Path]:
    """Tiny files with the shapes of the data sets of the commands, by the name that stands there."""
    folder, rng, files = tmp_path_factory.mktemp("data"), np.random.default_rng(0), {}
    for name, classes in (
        ("cifar-10-batches-bin", 10),
        ("cifar-100-binary", 10),
        ("imagenet", 10),
        ("svhn/test.npz", 10),
    ):
        files[name] = folder / f"{name.replace('/', '-').removesuffix('.npz')}.npz"
        y = np.arange(120) % classes
        np.savez(files[name], x=rng.integers(256, size=(120, 32, 32, 3), dtype=np.uint8), y=y)
    return files


def options_of(command: str) -> dict:
    """The options of a command, as the command line reads them."""
    words, options = shlex.split(command)[3:], {}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        name = flag.removeprefix("--").replace("-", "_")
        kind = LISTS[name][0] if name in LISTS else int if value.isdigit() else str
        options[name] = tuple(map(kind, value.split(","))) if name in LISTS else kind(value)
    return options


GPU_ITEMS = [item for item in WORK.items if "cuda" in item.full_scale]


@pytest.mark.slow
@pytest.mark.parametrize("item", GPU_ITEMS, ids=lambda item: item.name)
def test_commands_for_a_gpu_run_at_toy_scale(item, images, tmp_path, monkeypatch):
    """The same flags on a few images for two steps: everything but the scale and the device is the command's."""
    options = options_of(item.full_scale)
    assert options.pop("out").startswith("runs/")
    assert set(options) <= OPTIONS
    tiny = {
        "data": str(images[options.get("data", "cifar-10-batches-bin")]),
        "device": "cpu",
        "epochs": 1,
        "members": 2,
    }
    lighter = {"net": "resnet20"} if options["net"] != "resnet20" else {}  # the plan stays: its network takes minutes
    small = {"batch_size": 32, "examples": 12, "subspace": 2, "severities": (1,), "chain_epochs": 3, "cycles": 2}
    monkeypatch.setattr(
        "murmuration.studies.papers.landscape.reproduce.chosen_setting",
        lambda options: (
            replace(chosen_setting(options)[0], **small, **lighter, val=0.2, chain_batch=8),
            chosen_setting(options)[1],
        ),
    )
    monkeypatch.setattr("murmuration.studies.pages.studies.PLANE_SAMPLES", 2)
    outcome = run(options | tiny, tmp_path / "lab")
    assert re.match("published plan of", outcome.record["plan"])
    words = {each["name"]: each["verdict"] for each in outcome.record["verdicts"]}
    assert all(words[name] != "not run" for name in item.claims)
