"""Every file of a run is the one that was written, or is refused by its name: never another prediction."""

import json
import re
import shutil
import warnings
from pathlib import Path

import pytest

import murmuration as mm
from murmuration.cli import main
from murmuration.data import Data
from murmuration.runs import checkpoints, directory as runs, locks
from murmuration.system import files, process_names
from murmuration.training.plan import Plan

PLAN = Plan(members=2, epochs=1, batch_size=64, engine="loop", lr=3e-3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A complete run with a trajectory, post-hoc steps and an evaluation."""
    path = tmp_path_factory.mktemp("digests") / "run"
    small = ("--members", "2", "--epochs", "1", "--batch-size", "64", "--net", "mlp", "--trajectory", "every-epoch")
    assert main(["train", "two-moons", *small, "--out", str(path), "--json"]) == 0
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def edited(file: str, pattern: str, new: str):
    """An edit of a text file, by hand."""

    def edit(run: Path) -> None:
        text = (run / file).read_text()
        changed = re.sub(pattern, new, text, count=1, flags=re.DOTALL)
        assert changed != text
        (run / file).write_text(changed)

    return edit


def flipped(file: str):
    """One bit in the middle of a file."""

    def flip(run: Path) -> None:
        content = bytearray((run / file).read_bytes())
        content[len(content) // 2] ^= 1
        (run / file).write_bytes(bytes(content))

    return flip


def deleted(file: str):
    return lambda run: (run / file).unlink()


TAMPERED = {
    "classes swapped": (edited("run.json", r'"0",\s*"1"', '"1", "0"'), "run.json has changed since it was written"),
    "another mean": (edited("run.json", r'("mean": \[\s*)0\.0', r"\g<1>0.5"), "run.json has changed"),
    "another seed": (edited("run.json", r'"seed": 0', '"seed": 1'), "run.json has changed since it was written"),
    "an entry removed": (edited("run.json", r'"engine": \{.*?\},', ""), "run.json has changed since it was written"),
    "a bit of the members": (flipped("members.safetensors"), "members.safetensors has changed since it was written"),
    "another temperature": (
        edited("posthoc.json", r'("temperature": \[?\s*\d+\.)(\d)', r"\g<1>9\g<2>"),
        "posthoc.json has changed since it was written",
    ),
    "another threshold": (
        edited("posthoc.json", r'("threshold": \d\.\d)', r"\g<1>1"),
        "posthoc.json has changed since it was written",
    ),
    "no post-hoc steps": (deleted("posthoc.json"), "posthoc.json is missing"),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_a_changed_file_is_named_and_nothing_is_predicted(run: Path, tmp_path: Path, kind, capsys):
    change, message = TAMPERED[kind]
    change(run)
    for _ in range(2):  # a refusal changes nothing
        assert main(["predict", str(run), "two-moons", "--out", str(tmp_path / "p.csv")]) == 1
        told = capsys.readouterr().err
        assert f"{run}/{message}" in told
        assert told.count("\n") == 1
        assert "Error" not in told
    assert not (tmp_path / "p.csv").exists()
    with pytest.raises(mm.Failure, match=message):
        mm.load(run)


def test_post_hoc_steps_of_another_run_are_refused(run: Path, tmp_path: Path, moons: Data):
    mm.fit("mlp", moons, plan=PLAN, posthoc=None, out=tmp_path / "plain")
    shutil.copy(run / "posthoc.json", tmp_path / "plain")
    with pytest.raises(mm.Failure, match=r"posthoc\.json has changed since it was written"):
        mm.load(tmp_path / "plain")


@pytest.mark.filterwarnings("always::UserWarning")
def test_a_history_without_permission_to_read_stops_no_prediction(run: Path, tmp_path: Path, monkeypatch, capsys):
    def denied(path: Path) -> str:
        if path.name == "history.jsonl":
            raise PermissionError(13, "Permission denied")
        return digest_of(path)

    digest_of = files.digest_of
    monkeypatch.setattr(files, "digest_of", denied)
    capsys.readouterr()
    assert main(["predict", str(run), "two-moons", "--out", str(tmp_path / "p.csv")]) == 0
    note = r"note: \S*history\.jsonl cannot be read: Permission denied: training curves are left out\n"
    assert re.fullmatch(note, capsys.readouterr().err)


@pytest.mark.filterwarnings("always::UserWarning")
@pytest.mark.parametrize("damage", [flipped("history.jsonl"), deleted("history.jsonl")])
def test_a_damaged_history_stops_no_prediction(run: Path, tmp_path: Path, damage, capsys):
    out = ["--out", str(tmp_path / "p.csv")]
    assert main(["predict", str(run), "two-moons", *out]) == 0
    before = (tmp_path / "p.csv").read_bytes()
    capsys.readouterr()
    damage(run)
    assert main(["predict", str(run), "two-moons", *out, "--force"]) == 0
    assert re.fullmatch(r"note: \S*history\.jsonl .*: training curves are left out\n", capsys.readouterr().err)
    assert (tmp_path / "p.csv").read_bytes() == before


def test_the_manifest_knows_every_file(finished: Path):
    known = runs.read_run(finished).files
    found = {str(file.relative_to(finished)) for file in finished.rglob("*") if file.is_file()}
    assert found == {"run.json", *known}
    assert all(files.digest_of(finished / name) == digest for name, digest in known.items())


class Killed(Exception):  # noqa: N818
    pass


def killed_run(path: Path, data: Data, steps: int = 3, **settings) -> Path:
    def show(text, done, total, record):
        if done == steps:
            raise Killed

    with pytest.raises(Killed):
        mm.fit("mlp", data, plan=PLAN, out=path, progress=show, posthoc=None, checkpoint_seconds=0, **settings)
    return path


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("latest.json", edited("checkpoints/latest.json", r'"step": 2', '"step": 4')),
        ("latest.json", edited("checkpoints/latest.json", r'"seconds": \d', '"seconds": 7')),
        ("step-000000002.safetensors", flipped("checkpoints/step-000000002.safetensors")),
        ("step-000000002.safetensors", deleted("checkpoints/step-000000002.safetensors")),
        ("run.json", edited("run.json", r'"lr": 0\.003', '"lr": 0.3')),
    ],
)
def test_a_changed_checkpoint_is_not_continued(tmp_path: Path, moons: Data, file, change, capsys):
    run = killed_run(tmp_path / "run", moons)
    assert checkpoints.load_checkpoint(run) is not None
    change(run)
    assert main(["resume", str(run)]) == 1
    told = capsys.readouterr().err
    assert re.search(rf"{re.escape(file)} (has changed since it was written|is missing): the run is damaged", told)
    assert told.count("\n") == 1


@pytest.mark.parametrize("change", [flipped, deleted])
def test_a_run_does_not_go_on_without_its_trajectory(tmp_path: Path, moons: Data, change):
    run = killed_run(tmp_path / "run", moons, trajectory="every-epoch")
    change("trajectory/step-000000000.safetensors")(run)
    with pytest.raises(mm.Failure, match=r"trajectory/step-000000000\.safetensors (has changed|is missing)"):
        mm.resume(run, data=moons)


def test_a_lost_manifest_of_a_killed_calibration_is_named(run: Path):
    killed = json.dumps({**locks.describe_holder(empty=False), "started": None})
    (run / f"{locks.PREFIX}{process_names.this_machine()}.999999999").write_text(killed)
    (run / "run.json").unlink()
    with pytest.raises(mm.Failure, match=r"run\.json is missing, and"):
        runs.read_run(run)


def test_one_bit_of_a_frozen_backbone_is_noticed(tmp_path: Path, moons: Data):
    mm.fit("mlp", moons, plan=PLAN, members=1, posthoc=None, out=tmp_path / "body")
    recipe = mm.make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={tmp_path / 'body'}")
    run = killed_run(tmp_path / "run", moons, recipe=recipe)
    flipped("backbone.safetensors")(run)
    with pytest.raises(mm.Failure, match=r"backbone\.safetensors has changed since it was written"):
        mm.resume(run)


def test_a_complete_run_is_resumed_with_all_its_files_or_not_at_all(tmp_path: Path, moons: Data, capsys):
    mm.fit("mlp", moons, plan=PLAN, members=1, posthoc=None, out=tmp_path / "body")
    recipe = mm.make_recipe("last-layer-ensemble", sharing=f"backbone:frozen={tmp_path / 'body'}")
    run = tmp_path / "run"
    settings = {"posthoc": None, "trajectory": "every-epoch"}
    mm.fit("mlp", mm.open_data("two-moons"), plan=PLAN, recipe=recipe, out=run, **settings)
    mm.resume(run)
    for name in ("backbone.safetensors", "trajectory/step-000000000.safetensors"):
        content = (run / name).read_bytes()
        (run / name).unlink()
        assert main(["resume", str(run)]) == 1
        assert capsys.readouterr().err == f"error: {run / name} is missing: the run is damaged\n"
        with pytest.raises(mm.Failure, match=f"{name} is missing"):
            mm.resume(run)
        assert mm.load(run).members == 2  # predictions do not need it
        (run / name).write_bytes(content)
    assert main(["resume", str(run), "--json"]) == 0


@pytest.mark.parametrize("name", ["single/run.json", "compare.json", "deep-ensemble/members.safetensors"])
def test_a_comparison_names_the_file_that_it_has_lost(tmp_path: Path, name, capsys):
    out = tmp_path / "compared"
    small = ("--net", "mlp:hidden=4", "--epochs", "1", "--members", "2", "--batch-size", "512", "--baselines", "none")
    words = ["compare", "two-moons", "--recipes", "single,deep-ensemble", *small, "--out", str(out), "--json"]
    assert main(words) == 0
    capsys.readouterr()
    (out / name).unlink()
    assert main(words) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"error: {out / name} is missing")
    assert re.search(r"restore it, or |the run is damaged; remove \S*/deep-ensemble and repeat the command", told)
    assert told.count("\n") == 1


def test_runs_of_the_format_without_digests_are_refused(run: Path):
    manifest = json.loads((run / "run.json").read_text())
    files.write_record(run / "run.json", {**manifest, "format": 1})
    with pytest.raises(mm.Failure, match=r"run\.json: format 1, expected 2; written by another version\?"):
        mm.load(run)


def interrupted_calibration(run: Path, monkeypatch, after: int) -> None:
    """`murmur calibrate`, killed before it writes its n-th file; the first is the manifest."""
    write, count = files.write_whole, iter(range(100))

    def stop(path, function):
        if next(count) == after:
            raise Killed
        write(path, function)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_whole", stop)
        patch.setenv("MURMUR_DEBUG", "1")
        with pytest.raises(Killed):
            main(["calibrate", str(run), "--coverage", "0.7", "--json"])


@pytest.mark.slow
@pytest.mark.parametrize("after", range(5))
def test_a_calibration_killed_between_its_files_is_said_and_repeated(run: Path, tmp_path: Path, monkeypatch, after):
    other = Path(shutil.copytree(run, tmp_path / "other"))
    assert main(["calibrate", str(other), "--coverage", "0.7", "--json"]) == 0
    names = ("posthoc.json", "metrics.json", "report.html")
    before = {name: (run / name).read_bytes() for name in names}
    interrupted_calibration(run, monkeypatch, after)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        coverage = mm.load(run).posthoc.conformal[0].coverage
    replaced = [name for name in names if (run / name).read_bytes() != before[name]]
    assert coverage == (0.7 if "posthoc.json" in replaced else 0.9)
    told = [str(each.message) for each in said if "was killed while it wrote" in str(each.message)]
    assert len(told) == (0 < len(replaced) < 3)
    assert main(["calibrate", str(run), "--coverage", "0.7", "--json"]) == 0
    assert (run / "posthoc.json").read_bytes() == (other / "posthoc.json").read_bytes()
    assert not runs.read_run(run).changing
