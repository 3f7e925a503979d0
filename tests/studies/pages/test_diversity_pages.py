"""Pages of similarity, t-SNE, diversity and ensemble sizes: complete, with the numbers of their records."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from check_report import report_check

import murmuration as mm
from murmuration.reports.page import framed
from murmuration.studies import plots
from murmuration.studies.diversity import Exponent, SampledNetworks, TradeOff
from murmuration.studies.embedding import Embedding, Separation
from murmuration.studies.pages.embedding import embedding_figures, embedding_sections
from murmuration.studies.pages.similarity import similarity_figures, similarity_sections
from murmuration.studies.pages.sizes import sizes_figures, sizes_sections
from murmuration.studies.pages.trade_off import trade_off_figures, trade_off_sections
from murmuration.studies.similarity import Similarity
from murmuration.studies.sizes import SCORED, Condition, Sizes
from murmuration.studies.verdicts import Estimate, Verdict

RNG = np.random.default_rng(0)
VERDICTS = (Verdict("one", "samples stay", (Estimate("share", 0.9, 0.8, 1.0, 0.95, 1.0, "3 runs"),), "a note"),)


def symmetric(count: int) -> np.ndarray:
    values = RNG.uniform(size=(count, count))
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1)
    return values


def labels(count: int) -> torch.Tensor:
    return torch.from_numpy(RNG.integers(10, size=(count, 50)))


@pytest.fixture(scope="module")
def members() -> Similarity:
    groups = ("<a>", "<a>", "b", "b")
    accuracy = np.array([0.6, 0.7, 1.0, 0.8])
    matrices = symmetric(4), 1 - symmetric(4)
    return Similarity("samples", tuple("0123"), groups, *matrices, accuracy, 10, 50, labels(4), symmetric(4))


@pytest.fixture(scope="module")
def path() -> Similarity:
    names = tuple(str(epoch) for epoch in range(1, 21))
    matrices = symmetric(20), 1 - symmetric(20)
    return Similarity("path", names, ("0",) * 20, *matrices, np.full(20, 0.5), 10, 50, labels(20))


def test_small_disagreement_does_not_reach_the_end_of_the_colours() -> None:
    """Networks that disagree on 0.7 % of the inputs look alike; those that disagree on half of them do not."""
    for apart, end in ((0.007, 0.1), (0.5, 0.5)):
        disagreement = np.full((3, 3), apart) * (1 - np.eye(3))
        about = np.full(3, 0.9), 10, 50, labels(3)
        record = Similarity("members", tuple("012"), ("0",) * 3, np.eye(3), disagreement, *about)
        trace = similarity_figures(record)["disagreement"].data[0]
        assert (trace["zmin"], trace["zmax"]) == (0.0, end)


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    methods = ("path",) * 6 + ("<i>pca</i>",) * 4
    kinds = tuple("path" if method == "path" else "sample" for method in methods)
    epochs = (1.0, 2.0, 3.0) * 2 + (math.nan,) * 4
    spaces = Separation(3.0, 1.0, 0.75, (1.0, 0.5)), Separation(2.0, 1.0, 1.0, (1.0, 1.0))
    runs = (0, 0, 0, 1, 1, 1, 0, 0, 1, 1)
    return Embedding(RNG.normal(size=(10, 2)), runs, kinds, methods, epochs, *spaces, 0.3, 3.0, 40, VERDICTS)


def terms(count: int) -> dict[str, np.ndarray]:
    return {name: RNG.uniform(size=(count, 500)) for name in ("diversity", "divergence")}


@pytest.fixture(scope="module")
def traded() -> TradeOff:
    drawn = {
        name: SampledNetworks(
            *(RNG.uniform(*ends, count) for ends in ((0.5, 0.7), (0.2, 0.3), (0.1, 0.5))), terms(count)
        )
        for name, count in (("independent", 3), ("random", 8), ("<b>own</b>", 2))
    }
    return TradeOff(0.71, 10, 500, drawn, {"subspaces": Exponent(0.3, 0.2, 0.4, 0.01, 8)})


@pytest.fixture(scope="module")
def compared() -> Sizes:
    methods, conditions = (
        ("original", "average", "<u>swag</u>"),
        (Condition("", 0), Condition("fog", 1), Condition("fog", 5)),
    )
    scores = RNG.uniform(0.1, 0.9, size=(3, 3, 3, 4))
    scores[2, 2] = np.nan  # two runs of the last method
    foreign = Condition("<s>svhn</s>", 0, True)
    groups = {
        name: {each: 0.1 * i + 0.1 for i, each in enumerate((*conditions, foreign))}
        for name in ("independent", methods[2])
    }
    subsets = np.array([[3, 3, 1], [3, 3, 1], [2, 1, 0]])
    about = subsets, subsets > 0, groups, 3, 200, {}, VERDICTS
    return Sizes(methods, (1, 2, 3), conditions, SCORED, scores, scores / 10, *about)


def test_pages_are_sound_and_say_what_was_found(members, path, embedding, traded, compared, tmp_path):
    pages = {
        "similarity": (
            framed("A <title>", "digits", similarity_sections({"members": members, "path": path})),
            (members, path),
        ),
        "embedding": (framed("A <title>", "digits", embedding_sections(embedding)), (embedding,)),
        "trade_off": (framed("A <title>", "digits", trade_off_sections(traded)), (traded,)),
        "sizes": (framed("A <title>", "digits", sizes_sections(compared)), (compared,)),
    }
    for name, (page, records) in pages.items():
        (tmp_path / f"{name}.html").write_text(page)
        assert report_check(tmp_path / f"{name}.html") == []
        assert "A &lt;title&gt;" in page
        assert not re.search("<(b|i|u|s)>", page)
        words = page.split("<script id=")[0].lower().replace("<nav", "")
        assert "nan" not in words
        judged = [verdict for record in records for verdict in record.verdicts]
        assert judged
        for verdict in judged:
            assert all(words in page for words in (verdict.claim, verdict.word))
            assert all(estimate.over in page for estimate in verdict.estimates)


def test_figures_show_the_numbers_of_their_records(members, path, embedding, traded, compared):
    drawn = similarity_figures(members)
    assert set(drawn) == {"cosine", "disagreement", "cka", "diversity"}
    assert drawn["cka"].data[0]["z"][1][2] == pytest.approx(members.cka[1, 2], rel=1e-5)
    assert drawn["cka"].data[0]["z"][1][1] is None
    along = similarity_figures(path)["cosine"]
    assert along.data[0]["x"] == [str(epoch) for epoch in range(1, 21)]
    assert "autorange" not in along.layout["yaxis"]  # from the lower left

    (shown,) = embedding_figures(embedding).values()
    assert shown.data[0]["x"] == pytest.approx(embedding.positions[:3, 0].tolist(), rel=1e-5)
    assert [trace["marker"].get("symbol") for trace in shown.data[:3]] == [None, "star", "diamond"]

    plane = trade_off_figures(traded)["plane"]
    names = [trace["name"] for trace in plane.data]
    assert names[-4:] == ["independent", "random", "&lt;b&gt;own&lt;/b&gt;", "reference"]
    assert plane.data[-3]["y"] == pytest.approx(traded.methods["random"].diversity.tolist(), rel=1e-5)
    near = trade_off_figures(traded)["near"]
    assert near.layout["xaxis"]["range"][0] == pytest.approx(0.66)

    figures = sizes_figures(compared)
    assert {"size-nll", "severity-nll", "divergence-severity", "divergence-ood"} <= set(figures)
    assert figures["size-nll"].data[0]["y"] == pytest.approx(compared.scores[0, :, 0, 1].tolist(), rel=1e-5)
    assert figures["size-nll"].data[2]["y"][2] is None  # fewer runs
    solid = figures["severity-brier"].data[1]
    assert solid["y"] == pytest.approx(compared.scores[0, 2, :, 2].tolist(), rel=1e-5)
    assert figures["divergence-ood"].data[0]["x"] == pytest.approx([0.4, 0.4])
    for each in (*drawn.values(), shown, plane, near, *figures.values()):
        assert each.label


def test_pages_without_corruptions_samples_or_other_members(members, tmp_path):
    bare = Sizes(
        ("original",),
        (1,),
        (Condition("", 0),),
        SCORED,
        np.full((1, 1, 1, 4), 0.5),
        np.zeros((1, 1, 1, 4)),
        np.ones((1, 1), dtype=int),
        np.ones((1, 1), dtype=bool),
        {},
        1,
        10,
    )
    alone = Similarity("members", ("0",), ("0",), np.ones((1, 1)), np.zeros((1, 1)), np.array([0.5]), 3, 10, labels(1))
    reference = TradeOff(1.0, 3, 10, {}, {})
    for page in (
        framed("a", "b", sizes_sections(bare)),
        framed("a", "b", similarity_sections({"random": alone})),
        framed("a", "b", trade_off_sections(reference)),
    ):
        (tmp_path / "page.html").write_text(page)
        assert report_check(tmp_path / "page.html") == []


def test_plots_are_the_figures_of_the_pages(members, embedding, traded, compared):
    pytest.importorskip("plotly")
    assert plots.similarity(members, "cka").data[0].z[1][2] == similarity_figures(members)["cka"].data[0]["z"][1][2]
    assert plots.embedding(embedding).data[0].x[0] == embedding_figures(embedding)["map"].data[0]["x"][0]
    assert plots.trade_off(traded, "near").layout.title.text == "Within 5 points of the reference"
    assert plots.ensemble_sizes(compared, "size-ece", theme="dark").data[0].name == "runs"
    with pytest.raises(mm.Misuse, match="size-f1"):
        plots.ensemble_sizes(compared, "size-f1")


def test_the_programs_of_the_page_run(tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    page = (Path(__file__).parents[3] / "docs" / "reference" / "landscape.md").read_text()
    part = page.split("## Similarity", 1)[1].split("## Images", 1)[0]
    programs = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    assert len(programs) == 5
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    exec("\n".join(programs), known)
    assert known["sizes"].methods == ("original", "average", "trajectory", "random", "diagonal")
    assert known["plane"].within_bounds
