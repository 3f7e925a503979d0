"""The distribution: its name where texts say how to install it, its files, its version, its bound of torch."""

import hashlib
import json
import re
import tomllib
from pathlib import Path

import murmuration

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NAME = PROJECT["project"]["name"]
TAKEN = ("murmuration", "murmur")  # packages of other people on the package index
SUFFIXES = {".py", ".md", ".toml", ".txt", ".cff", ""}
FOLDERS = ("murmuration", "tests", "examples", "benchmarks", "docs")
TEXTS = [
    path
    for path in [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    if path.is_file() and path.suffix in SUFFIXES and path.name not in (".git", Path(__file__).name)
]


def installed_names(text: str) -> list[str]:
    """The distributions that the `pip install` commands of a text name, without extras and versions."""
    commands = re.findall(r"pip install\s+((?:[^\n`#;,]|,(?! ))*)", text.replace("\\[", "[").replace("\\]", "]"))
    words = [word.strip("'\")(.,") for command in commands for word in command.split()]
    return [re.split(r"[\[<>=!~]", word)[0] for word in words if not word.startswith("-")]


def test_the_names_of_install_commands_are_found():
    assert installed_names("run pip install --quiet 'murmuration[hf]', or else") == ["murmuration"]
    assert installed_names("`pip install -e '.[images]'`") == [""]
    assert installed_names("pip install torch-murmuration[images]  # all") == ["torch-murmuration"]


def test_no_text_installs_a_package_of_somebody_else():
    found = {path.name: installed_names(path.read_text(encoding="utf-8")) for path in TEXTS}
    assert [name for name, names in found.items() if set(names) & set(TAKEN)] == []
    assert [name for name, names in found.items() if NAME in names]  # the search finds the right ones


def test_extras_are_installed_by_the_name_of_the_distribution():
    own = [each for group in PROJECT["project"]["optional-dependencies"].values() for each in group]
    assert [each for each in own if re.split(r"\W", each)[0] in TAKEN] == []
    named = {extra for path in TEXTS for extra in re.findall(rf"{NAME}\[(\w+)\]", path.read_text(encoding="utf-8"))}
    assert named <= set(PROJECT["project"]["optional-dependencies"])


def test_every_file_of_the_package_is_shipped():
    package = ROOT / "murmuration"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["murmuration"]
    shipped = {path for pattern in patterns for path in package.glob(pattern)}
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others - shipped == set()
    assert package / "py.typed" in shipped
    assert all((ROOT / name).is_file() for name in PROJECT["project"]["license-files"])


def test_the_version_is_written_once():
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "murmuration.__version__"}
    assert f"version: {murmuration.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_oldest_torch_is_not_newer_than_that_of_the_tests_and_newer_ones_are_not_refused():
    (wanted,) = [each for each in PROJECT["project"]["dependencies"] if re.match(r"torch\b", each)]
    (tested,) = re.findall(r"^torch==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    (least,) = re.findall(r"^torch>=(\d+)\.(\d+)$", wanted)
    assert tuple(map(int, least)) <= tuple(map(int, tested))


def plain_name(entry: str) -> str:
    """The name of a requirement as the package index writes it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=]", entry)[0]).lower()


def test_the_lock_has_every_pinned_package_by_hash_and_nothing_else():
    text = (ROOT / "requirements.lock").read_text()
    entry = r"([a-z0-9.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
    assert re.fullmatch(rf"#[^\n]*\n(?:{entry})+", text)  # no address of an index, no path, no package without a hash
    locked = {name: version for name, version, _ in re.findall(entry, text)}
    constraints = re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    pinned = {plain_name(name): version for name, version in constraints}
    extras = PROJECT["project"]["optional-dependencies"]
    needed = [each for extra in ("dev", "docs", "images", "models", "plots", "pretrained") for each in extras[extra]]
    assert {plain_name(each) for each in (*PROJECT["project"]["dependencies"], *needed)} - {*locked} == {"torch", NAME}
    assert {name: version for name, version in pinned.items() if locked.get(name) != version} == {
        "torch": pinned["torch"]
    }


def test_the_digest_of_plotly_is_the_recorded_one():
    folder = ROOT / "murmuration" / "reports" / "plotly"
    origin, script = json.loads((folder / "ORIGIN.json").read_text()), (folder / "plotly-cartesian.min.js").read_bytes()
    assert hashlib.sha256(script).hexdigest() == origin["sha256"]
    assert f"v{origin['version']}" in script[:200].decode()
    assert origin["registry"].endswith(f"{origin['package']}-{origin['version']}.tgz")


def test_the_repository_is_named_once_and_the_same_everywhere():
    """`make repository URL=...` replaces it in all files; links into it lead to files that exist."""
    repository = PROJECT["project"]["urls"]["Repository"]
    files = [*TEXTS, ROOT / "mkdocs.yml", *(path for path in ROOT.glob(".github/**/*") if path.is_file())]
    for path in files:
        text = path.read_text(encoding="utf-8")
        others = set(re.findall(r"https://github\.com/[\w-]+/murmuration", text)) - {repository}
        assert others == set() or path.name == "Makefile", path.name
        for target in re.findall(rf"{repository}/(?:blob|raw|tree)/main/([\w./-]+)", text):
            assert (ROOT / target).exists(), f"{path.name}: {target}"
    assert PROJECT["project"]["urls"].keys() >= {"Repository", "Changelog", "Issues"}
    assert all(url.startswith(repository) for url in PROJECT["project"]["urls"].values())


def test_nothing_is_called_released_that_has_no_date():
    released = re.search(r"^## \[?\d+\.\d+\.\d+\]? - \d{4}-", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert ("date-released" in (ROOT / "CITATION.cff").read_text()) == bool(released)


def test_the_changelog_keeps_its_form():
    """Keep a Changelog: versions, their kinds of changes, one short line each."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^(##+ .*)$", text, re.MULTILINE)
    assert headings[0] == "## [Unreleased]"
    version = (
        r"## \[(Unreleased|\d+\.\d+\.\d+)\]( - \d{4}-\d\d-\d\d)?|### (Added|Changed|Deprecated|Removed|Fixed|Security)"
    )
    assert [heading for heading in headings if not re.fullmatch(version, heading)] == []
    lines = text.splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if line.startswith("  ") or len(line) > 240] == []
