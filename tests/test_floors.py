"""The second floor can be removed: nothing below names it, and the rest of the repository is tested without it."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import murmuration

PACKAGE = Path(murmuration.__file__).parent
ROOT = Path(__file__).parents[1]
SECOND_FLOOR = ("applications", "studies")
GROUND_FLOOR = ("system", "likelihoods", "core")  # each may import those before it
MENTION = re.compile(r"\bmurmuration(?:[./]| import .*\b)(?:applications|studies)\b")
NO_EDITABLE_INSTALL = """
import sys  # the finder of an editable install would find the missing modules in the original repository
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
"""
BELOW = [path for path in sorted(PACKAGE.rglob("*.py*")) if path.relative_to(PACKAGE).parts[0] not in SECOND_FLOOR]


def test_no_module_below_mentions_the_second_floor():
    texts = {path: path.read_text() for path in BELOW if path.suffix in (".py", ".pyi")}
    assert len(texts) > 200
    assert [str(path.relative_to(PACKAGE)) for path, text in texts.items() if MENTION.search(text)] == []


def imported_modules(path: Path) -> set[str]:
    """Return the modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("room", GROUND_FLOOR)
def test_the_ground_floor_imports_nothing_above_it(room: str):
    allowed = GROUND_FLOOR[: GROUND_FLOOR.index(room) + 1]
    for path in sorted((PACKAGE / room).rglob("*.py")):
        own = {name for name in imported_modules(path) if name.split(".")[0] == "murmuration"}
        assert [name for name in own if name.split(".")[1] not in allowed] == [], path


def without_second_floor(folder: Path) -> Path:
    """Copy the repository to a folder without the second floor, its tests and its entry points."""

    def left_out(directory: str, names: list[str]) -> set[str]:
        place = Path(directory).relative_to(ROOT)
        second = SECOND_FLOOR if place in (Path("murmuration"), Path("tests")) else ()
        return {name for name in names if name in second or name == "__pycache__"}

    for name in ("murmuration", "tests", "docs", "examples", "benchmarks", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, folder)
    project = (folder / "pyproject.toml").read_text()
    project = re.sub(r'^[\w-]+ = "murmuration\.(?:applications|studies)\..*\n', "", project, flags=re.MULTILINE)
    (folder / "pyproject.toml").write_text(project)
    info = folder / "torch_murmuration-0.dist-info"  # found before the installed one, which has the entry points
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-murmuration\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nmurmur = murmuration.__main__:main\n")
    (folder / "sitecustomize.py").write_text(NO_EDITABLE_INSTALL)
    return folder


@pytest.mark.slow
def test_the_rest_is_tested_without_the_second_floor(tmp_path: Path):
    folder = without_second_floor(tmp_path / "repository")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    code = (
        "import importlib.util as u; from murmuration.system.plugins import plugins; import murmuration;"
        f"print(murmuration.__file__, [u.find_spec(f'murmuration.{{n}}') for n in {SECOND_FLOOR}],"
        " plugins('murmuration.commands'))"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    assert found == f"{folder / 'murmuration' / '__init__.py'} [None, None] {{}}\n"
    command = [sys.executable, "-m", "pytest", "-x", "-m", "not slow", "-p", "no:cacheprovider", "-n", "2"]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
