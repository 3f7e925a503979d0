"""What is said of a run on photographs: scores beside bicubic, the worst window, sentences no kinder than numbers."""

from pathlib import Path

import pytest
import torch
from superres_factories import grain, trained

from murmuration.applications.superres.evaluation import (
    CROP,
    Reconstruction,
    error_bins,
    evaluate,
    mean_scores,
    score_photograph,
)
from murmuration.applications.superres.page import panels, score_rows, sentences
from murmuration.applications.superres.training import patches_of, photographs


def seen(error: float, std: float, bicubic_error: float = 0.1) -> Reconstruction:
    """A photograph enlarged with the same error everywhere, and bicubic's worse in one window of the second row."""
    side = 2 * CROP
    truth = 0.5 * grain(2 * side, 2 * side)
    plain = truth + bicubic_error
    plain[side + 3, 5] += 0.3
    spread = std * (1 + grain(2 * side, 2 * side, seed=1))
    return Reconstruction("a", truth[::2, ::2], truth, plain, truth + error, spread)


def test_scores_are_those_of_the_whole_photograph():
    found = score_photograph(seen(error=0.01, std=0.0), noise_std=0.02)
    assert found.scores["psnr"] == pytest.approx(40.0, abs=1e-3)
    assert found.scores["psnr_bicubic"] == pytest.approx(20.0, abs=0.1)
    assert found.scores["noise_fraction"] == pytest.approx(4.0, rel=1e-3)
    bicubic, gain = found.scores["psnr_bicubic"], found.scores["gain"]
    assert score_rows([found])[0][1:4] == [f"{bicubic:.2f}", "40.00", f"+{gain:.2f}"]


def test_the_window_shown_is_where_bicubic_errs_most():
    whole = seen(error=0.01, std=0.01)
    shown = score_photograph(whole, 0.02).crop
    assert shown.small.shape == (CROP, CROP)
    assert torch.equal(shown.truth, whole.truth[2 * CROP :, : 2 * CROP])
    labels = [label for label, _ in panels(shown)]
    assert labels[:4] == ["small", "bicubic", "mean prediction", "truth"]
    assert panels(shown)[3][1].shape == (2 * CROP, 2 * CROP)
    assert panels(shown)[4][1].max() == 255


def test_sentences_are_no_kinder_than_numbers():
    worse = sentences([score_photograph(seen(error=0.2, std=0.001), 0.02)])
    assert "dB below bicubic's" in worse[0]
    assert "hardly show where errors are" in worse[1]
    assert "it says little about the size of errors" in worse[2]
    sure = sentences([score_photograph(seen(error=0.01, std=0.0), 0.02)])
    assert "dB above bicubic's" in sure[0]
    assert sure[1:] == [
        "There is one network with deterministic weights, so there is no epistemic uncertainty to show."
    ]


def test_a_run_is_judged_on_photographs_it_never_saw(photo_folder: Path, upscaler):
    found = evaluate(upscaler)
    patches = patches_of(upscaler.manifest)
    held_out = photographs(patches.folder, patches.seed)["test"]
    assert [each.crop.name for each in found] == [path.stem for path in held_out]
    assert mean_scores(found)["psnr"] == sum(each.scores["psnr"] for each in found) / len(found)
    errors = torch.cat([each.error for each in found])
    assert sum(error**2 for _, error in error_bins(found)) / 10 == pytest.approx(
        float(errors.square().mean()), rel=0.01
    )


def test_an_ensemble_of_numbers_has_doubt_too(photo_folder: Path):
    """Any recipe will do: members that differ are draws."""
    from murmuration.applications.superres import Patches, open_patches, train
    from murmuration.training.plan import Plan

    data = open_patches(Patches(scale=3, size=6, count=32, folder=str(photo_folder)))
    ensemble = train(data, members=2, plan=Plan(epochs=1, lr=1e-3))
    (found,) = evaluate(ensemble)
    assert found.scores["epistemic_fraction"] > 0
    assert found.crop.scale == 3


def test_a_run_of_numbers_is_judged(photo_folder: Path):
    (found,) = evaluate(trained(photo_folder, weights="point"))
    assert found.scores["psnr"] > 10
    assert found.scores["epistemic_fraction"] == 0
