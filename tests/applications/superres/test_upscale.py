"""Draws of weights are held for a whole picture: crops, tiles and pixels belong together."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from superres_factories import grain, trained

from murmuration.applications.subpixel import REACH
from murmuration.applications.superres.evaluation import evaluate
from murmuration.applications.superres.upscale import predict_image, scale_of, upscale
from murmuration.core.engines import assemble, engine
from murmuration.core.recipe import make_recipe
from murmuration.core.weights import run_members
from murmuration.prediction.ensemble import Ensemble
from murmuration.system.errors import Misuse
from murmuration.system.streams import Noise


def draws_of(ensemble: Ensemble, small: torch.Tensor) -> torch.Tensor:
    scale = scale_of(ensemble)
    return predict_image(ensemble, small).outputs.view(-1, scale * small.shape[0], scale * small.shape[1])


def test_a_crop_of_the_prediction_is_the_prediction_of_the_crop(upscaler):
    picture, edge = grain(40, 44), REACH
    whole = draws_of(upscaler, picture)
    part = draws_of(upscaler, picture[3:33, 8:40])
    inside = part[:, 2 * edge : -2 * edge, 2 * edge : -2 * edge]
    same = whole[:, 2 * (3 + edge) : 2 * (33 - edge), 2 * (8 + edge) : 2 * (40 - edge)]
    torch.testing.assert_close(inside, same, atol=2e-6, rtol=0)
    assert (part[:, :2, :2] - whole[:, 6:8, 16:18]).abs().max() > 1e-5  # at its border it sees less
    assert whole.std(0).mean() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("tile", [7, 16, 64])
def test_tiles_fit_together(upscaler, tile: int):
    picture = grain(23, 31)
    whole = predict_image(upscaler, picture)
    found = upscale(upscaler, picture, tile=tile)
    torch.testing.assert_close(found.mean, whole.mean.view(46, 62).float().clamp(0, 1), atol=2e-6, rtol=0)
    torch.testing.assert_close(found.std, whole.epistemic_var.view(46, 62).sqrt().float(), atol=2e-6, rtol=0)


def correlation_of_neighbours(draws: torch.Tensor) -> float:
    """Mean correlation over draws (S, H, W) of pixels two to the right of each other, less the mean."""
    a, b = (part - part.mean(0) for part in (draws[:, :, :-4], draws[:, :, 4:]))
    return float(((a * b).sum(0) / (a.norm(dim=0) * b.norm(dim=0))).abs().mean())


def test_pixels_of_a_draw_vary_together_unlike_local_noise(upscaler):
    """On a picture of stripes, pixels four apart have the same surroundings: a function gives them the same answer."""
    picture = (torch.arange(24) % 2).float().expand(24, 24) * 0.8
    inner = slice(2 * REACH, 48 - 2 * REACH)
    held = replace(upscaler, recipe=make_recipe("bayes", weights="gaussian:init_std_ratio=0.3,draws=24"))
    functions = draws_of(held, picture)[:, inner, inner]
    assert correlation_of_neighbours(functions) > 0.999
    with assemble(engine("loop"), upscaler.groups[0].module) as team:
        population, noisy = upscaler.groups[0].population, []
        for i in range(24):
            noise = [Noise(0, i)]
            tensors = upscaler.family.realise(population.own, population.shared, noise, training=True)
            x = picture[None, None, None]
            noisy.append(run_members(team.structure(training=False), tensors.with_buffers({}), x, noise, False))
    local = torch.stack(noisy).detach().view(24, 48, 48)[:, inner, inner]
    assert correlation_of_neighbours(local) < 0.5  # independent noise of 24 draws: about 0.16


def test_psnr_never_sees_the_cost_of_the_weights(upscaler):
    """The same weights under another temperature have the same scores."""
    hot = replace(upscaler, recipe=make_recipe("bayes", weights="gaussian:init_std_ratio=0.3,draws=6,beta=7"))
    assert [each.to_json() for each in evaluate(hot)] == [each.to_json() for each in evaluate(upscaler)]


def test_weights_that_are_numbers_have_no_doubt(photo_folder: Path):
    found = upscale(trained(photo_folder, weights="point"), grain(9, 9))
    assert not found.std.any()


def test_other_runs_are_refused():
    ensemble = Ensemble.from_models([torch.nn.Linear(9, 1)], task="regression")
    with pytest.raises(Misuse, match="does not map images to images: train one with murmur superres train"):
        upscale(ensemble, grain(9, 9))
