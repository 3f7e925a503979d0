"""Pages and figures of the loss landscape: complete, with equal units on both axes, as plotly figures and as images."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from check_report import report_check
from torch import nn

import murmuration as mm
from murmuration.reports import plots as report_plots
from murmuration.reports.page import framed
from murmuration.studies import plots
from murmuration.studies.pages.maps import upper_colour
from murmuration.studies.pages.paths import paths_figures, paths_sections
from murmuration.studies.pages.plane import plane_figures, plane_sections
from murmuration.studies.pages.stitched import cartesian, stitched_figures, stitched_sections
from murmuration.studies.paths import Paths, paths_between
from murmuration.studies.planes import Plane, StitchedView, plane, stitched_view
from murmuration.studies.weight_space import points_of


@pytest.fixture(scope="module")
def nets() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(3)]


@pytest.fixture(scope="module")
def examples() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3


class Checkpoints:
    def __init__(self, nets):
        self.ends = points_of(nets).vectors

    def vectors(self, member):
        return [scale * self.ends[member] for scale in (0.5, 1.0)]


@pytest.fixture(scope="module")
def flat(nets, examples) -> Plane:
    samples = {"<b>samples</b>": [points_of(nets).vectors[2]]}
    return plane(nets, examples, train=examples, grid=4, trajectory=Checkpoints(nets), samples=samples)


@pytest.fixture(scope="module")
def found(nets, examples) -> Paths:
    quick = {"nodes": 2, "steps": 3, "depth": 0}
    return paths_between(nets, examples, train=examples, paths=("linear", "aligned", "tunnel"), **quick)


@pytest.fixture(scope="module")
def view(nets, examples, found) -> StitchedView:
    return stitched_view(nets, examples, found.tunnel, angles=6, radii=4)


def regression() -> tuple[mm.Ensemble, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    ensemble = mm.Ensemble.from_models([nn.Linear(3, 1) for _ in range(2)], task="regression")
    return ensemble, (torch.randn(20, 3), torch.randn(20, 1))


def test_pages_are_sound_and_say_what_was_found(flat, found, view, tmp_path):
    pages = {
        "plane": framed("A <plane>", "digits", plane_sections(flat)),
        "paths": framed("Paths", "digits", paths_sections(found)),
        "stitched": framed("Wedges", "digits", stitched_sections(view)),
    }
    for name, page in pages.items():
        (tmp_path / f"{name}.html").write_text(page)
        assert report_check(tmp_path / f"{name}.html") == []
        assert "nan" not in page.split("<script id=")[0].lower().replace("<nav", "")
    for verdict in (*flat.verdicts, *found.verdicts):
        for words in (verdict.claim, verdict.word, *(estimate.what for estimate in verdict.estimates)):
            assert any(words.replace("'", "&#x27;") in page for page in pages.values())
    assert "A &lt;plane&gt;" in pages["plane"]
    assert "<b>samples" not in pages["plane"]


def test_pages_of_regressions_have_no_accuracy_and_no_agreement(tmp_path):
    ensemble, examples = regression()
    flat = plane(ensemble, examples, grid=3)
    lines = paths_between(ensemble, examples, paths=("linear",))
    view = stitched_view(ensemble, examples, points_of(ensemble).vectors, angles=3, radii=3)
    assert list(plane_figures(flat)) == ["loss"]
    assert list(paths_figures(lines)) == ["loss"]
    assert list(stitched_figures(view)) == ["loss"]
    pages = (
        framed("a", "b", plane_sections(flat)),
        framed("a", "b", paths_sections(lines)),
        framed("a", "b", stitched_sections(view)),
    )
    for page in pages:
        (tmp_path / "page.html").write_text(page)
        assert report_check(tmp_path / "page.html") == []
    assert [verdict.name for verdict in flat.verdicts] == ["similar loss"]
    losses = flat.anchors.scores["loss"][1:]
    (change,) = flat.verdicts[0].estimates
    assert change.value == pytest.approx((losses[1] - losses[0]) / losses[0], rel=1e-4)
    assert change.over == "20 examples"


def test_maps_have_equal_units_and_a_text_alternative(flat, view):
    for drawn in (*plane_figures(flat).values(), *stitched_figures(view).values()):
        up = drawn.layout["yaxis"]
        assert (up["scaleanchor"], up["scaleratio"]) == ("x", 1)
        assert drawn.label
        assert drawn.data[0]["type"] == "contour"
        assert drawn.layout["xaxis"]["title"]["text"]


def test_maps_show_the_numbers_of_the_plane(flat):
    drawn = plane_figures(flat)
    assert drawn["accuracy"].data[0]["z"][1][2] == pytest.approx(flat.scores["accuracy"][1, 2], rel=1e-5)
    assert drawn["agreement_1"].data[0]["z"][3][0] == pytest.approx(flat.scores["agreement"][1, 3, 0], rel=1e-5)
    names = [trace.get("name") for trace in drawn["accuracy"].data[1:]]
    assert names == ["training of 0", "training of 1", "&lt;b&gt;samples&lt;/b&gt;", "networks"]
    assert len(drawn["accuracy"].layout["annotations"]) == 3
    assert (drawn["accuracy"].data[0]["reversescale"], drawn["loss"].data[0]["reversescale"]) == (False, True)


def test_three_networks_are_drawn_without_an_origin(nets, examples, tmp_path):
    flat = plane(nets, examples, anchors=(0, 1, 2), origin="anchor", grid=3)
    words = [note["text"] for note in plane_figures(flat)["accuracy"].layout["annotations"]]
    assert words == ["network 0", "network 1", "network 2"]
    (tmp_path / "page.html").write_text(framed("a", "b", plane_sections(flat)))
    assert report_check(tmp_path / "page.html") == []


def test_lines_are_the_scores_along_the_paths(found):
    drawn = paths_figures(found)
    assert list(drawn) == ["train_loss", "accuracy", "loss", "train_accuracy", "agreement_0", "agreement_1"]
    line = drawn["agreement_0"].data[0]
    assert (line["name"], line["x"][0], line["x"][-1], line["y"][0]) == ("straight line", 0, 1, 1)
    assert line["y"] == pytest.approx(found["linear"].scores["agreement"][0].tolist(), rel=1e-5)
    vertices = drawn["train_loss"].data[-1]
    assert vertices["mode"] == "markers"
    assert len(vertices["x"]) == len(found.tunnel)


def test_wedges_in_cartesian_coordinates():
    angle, radius = np.linspace(0, math.pi / 2, 7), np.linspace(0, 2, 5)
    values = np.outer(np.ones(7), radius) + np.outer(angle, np.ones(5))  # r + angle, which bilinear values keep
    view = StitchedView(angle, radius, {}, np.array([0, math.pi / 2]), np.ones(2), {})
    x, y, shown = cartesian(view, values)
    assert x[1] - x[0] == pytest.approx(y[1] - y[0])
    across, up = np.meshgrid(x, y)
    distance = np.hypot(across, up)
    inside = (distance <= 2) & (across >= 0) & (up >= 0)
    assert np.array_equal(np.isfinite(shown), inside)
    expected = distance + np.arctan2(up, across)
    assert shown[inside] == pytest.approx(expected[inside])


def test_colours_of_a_loss_end_near_its_upper_quartile():
    assert upper_colour(np.array([0.1, 0.2, 2.1, 300.0, 1.0])) == 2.5
    assert upper_colour(np.zeros(4)) > 0


def test_plots_are_the_figures_of_the_pages(flat, found, view):
    pytest.importorskip("plotly")
    for name, drawn in plane_figures(flat).items():
        found_z = plots.plane(flat, name).data[0].z
        assert [list(row) for row in found_z] == drawn.data[0]["z"]
    assert plots.paths(found, "agreement_1").layout.title.text == "Agreement with network 1"
    assert plots.stitched(view, theme="dark").data[1].line.color == "#f0953f"
    with pytest.raises(mm.Misuse, match="score 'brier'"):
        plots.plane(flat, "brier")


def test_the_programs_of_the_page_on_the_landscape_run(monkeypatch, tmp_path):
    text = (Path(__file__).parents[3] / "docs" / "reference" / "landscape.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", text.split("## Planes", 1)[1].split("## Alignment", 1)[0], re.DOTALL)
    assert len(programs) == 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for program in programs:
        exec(program, names)
    assert "</html>" in str(names["page"])


def test_images_need_an_ending_kaleido_and_a_browser(flat, monkeypatch, tmp_path):
    go = pytest.importorskip("plotly.graph_objects")
    drawn = plane_figures(flat)["accuracy"]
    with pytest.raises(mm.Misuse, match="gif"):
        report_plots.figure_image(drawn, tmp_path / "a.gif")
    monkeypatch.setattr(report_plots, "find_spec", lambda name: None)
    with pytest.raises(mm.Misuse, match="needs kaleido"):
        report_plots.figure_image(drawn, tmp_path / "a.png")
    monkeypatch.setattr(report_plots, "find_spec", lambda name: name)

    def fail(self, **settings):
        raise RuntimeError("Kaleido requires Google Chrome to be installed.\nMore words.")

    monkeypatch.setattr(go.Figure, "to_image", fail)
    with pytest.raises(mm.Failure, match=r"to be installed; install Chrome") as caught:
        report_plots.figure_image(drawn, tmp_path / "a.png")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(go.Figure, "to_image", lambda self, format, width, scale: f"{format} {width}".encode())
    assert report_plots.figure_image(drawn, tmp_path / "a.SVG", width=300).read_bytes() == b"svg 300"
