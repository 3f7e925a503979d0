"""The house itself: imports point backwards, rooms stay small, nothing from outside is run."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import murmuration

ROOT = Path(murmuration.__file__).parent
ORDER = [  # rooms; imports point backwards
    *("system", "likelihoods", "core"),  # ground floor
    *("data", "models", "runs", "prediction", "training", "evaluation", "reports", "sklearn", "cli"),  # first floor
    *("applications", "studies"),  # second floor
    "__main__",
]
FILES = sorted(ROOT.rglob("*.py"))
MAP = (ROOT / "README.md").read_text()


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("murmuration."):
            names.add(node.module.split(".")[1])
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("murmuration.")}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_backwards(path: Path):
    if room(path) == "__init__":
        return
    here = ORDER.index(room(path))
    ahead = [name for name in imported_rooms(ast.parse(path.read_text())) if ORDER.index(name) > here]
    assert not ahead, f"{path.name} imports {ahead}, which come after it"


def test_the_map_lists_the_rooms_in_the_order_of_their_imports():
    listed = [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"^\| `([^`]+)`", MAP, re.MULTILINE)]
    assert listed == [name for name in ORDER if name != "__main__"]
    assert set(ORDER) - {room(path) for path in FILES} in (set(), {"applications", "studies"})  # which can be removed
    assert {room(path) for path in FILES} - {"__init__"} <= set(ORDER)


def test_the_map_is_one_screen():
    assert len(MAP.splitlines()) <= 80
    assert max(map(len, MAP.splitlines())) <= 240


def lines_of(node: ast.FunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_and_files_stay_readable():
    long_files = [path.name for path in FILES if len(path.read_text().splitlines()) > 650]
    long_functions = [
        f"{path.name}:{node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and lines_of(node) > 60
    ]
    assert long_files == []
    assert long_functions == []


def test_nothing_from_outside_is_run_as_code():
    suspicious = re.compile(r"pickle\.loads?\(|torch\.load\(|allow_pickle=True|\beval\(|\bexec\(|weights_only=False")
    hits = [
        f"{path.name}:{i}"
        for path in FILES
        for i, line in enumerate(path.read_text().splitlines(), 1)
        if suspicious.search(line.replace(".eval()", "")) and not re.search(r"torch\.load\(.*weights_only=True\)", line)
    ]
    assert hits == []


def test_folders_with_more_than_three_files_say_what_they_are():
    folders = {path.parent for path in FILES if path.parent != ROOT}
    silent = [f.name for f in folders if len(list(f.glob("*.py"))) > 3 and not (f / "README.md").exists()]
    assert silent == []


def test_importing_the_package_stays_light():
    import subprocess
    import sys

    heavy = "pandas pyarrow torch sklearn scipy PIL typer rich torchvision plotly"
    code = f"import sys, murmuration; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_test_looks_at_the_clock():
    clock = re.compile(r"perf_counter\(|process_time\(|monotonic\(|time\.time\(|time\.sleep\(|timeout=")
    tests = Path(__file__).parent
    others = [path for path in tests.rglob("test_*.py") if path != Path(__file__)]
    assert [path.name for path in others if clock.search(path.read_text())] == []


def section(title: str) -> str:
    """A part of the map, from its title to the next one."""
    return MAP.split(f"**{title}", 1)[1].split("\n**", 1)[0]


def defined_in(path: str) -> set[str]:
    """Names that a file of the package defines at its top level, and the keys of its tables."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_the_map_resolves_every_place_that_it_names():
    """Tables and functions stand in the files that the map names beside them, and the examples exist."""
    changes, places = section("Where to put a change."), section("Where to look.")
    rows = re.findall(r"of `([A-Z_]+)`(?: in|,) ?`?([a-z_/]+\.py)?", changes)
    tables = dict(re.findall(r"`([A-Z_]+)` in `([a-z_/]+\.py)`", changes + places))
    assert {"COUPLINGS", "ESTIMATORS", "BANDWIDTHS", "DYNAMICS", "WEIGHTS", "PRESETS", "MEASURES", "FORMATS"} <= set(
        tables
    )
    assert len(rows) >= 10
    for name, path in tables.items():
        assert name in defined_in(path), f"{name} is not in {path}"
    functions = re.findall(r"`([a-z_/]+\.py)`, `([a-z_]+)`", places)
    functions += [(path, name) for name, path in re.findall(r"`([a-z_]+)` in `([a-z_/]+\.py)`", places)]
    assert {name for _, name in functions} == {"kernel_and_slopes", "couple", "draw_member"}
    for path, name in functions:
        assert name in defined_in(path), f"{name} is not in {path}"
    for example in re.findall(r"`(examples/[a-z_]+\.py)`", changes):
        assert (ROOT.parent / example).exists(), example


def test_what_the_map_says_of_forde_swag_and_ece_is_what_happens(monkeypatch, tmp_path: Path):
    """The named functions run in a FoRDE step and at the end of SWAG, and the report's label of ECE is the row's."""
    import murmuration as mm
    from murmuration.core.coupling import estimators
    from murmuration.core.dynamics import swag
    from murmuration.evaluation.metrics.scores import MEASURES

    calls: list[str] = []
    for module, name in ((estimators, "kernel_and_slopes"), (swag, "draw_member")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, real=real, name=name, **k: (calls.append(name), real(*a, **k))[1])
    plan = mm.Plan(members=2, epochs=1, batch_size=128, engine="loop")
    mm.fit("mlp", "two-moons", recipe="forde", plan=plan, posthoc=None)
    assert set(calls) == {"kernel_and_slopes"}
    calls.clear()
    mm.fit("mlp", "two-moons", recipe=mm.make_recipe("swag", dynamics="swag:draws=3"), plan=plan, posthoc=None)
    assert calls == ["draw_member"] * 6
    monkeypatch.setitem(
        MEASURES["classification"], "ece", replace(MEASURES["classification"]["ece"], label="Calibration gap (ECE)")
    )
    ensemble = mm.fit("mlp", "two-moons", plan=plan, posthoc=None)
    mm.evaluate(ensemble, mm.open_data("two-moons"), out=tmp_path)
    assert "Calibration gap (ECE)" in (tmp_path / "report.html").read_text()
