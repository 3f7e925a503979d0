"""The documentation site: every public name and every option has a place, and the site builds without a warning."""

import os
import re
import subprocess
import sys
from pathlib import Path

import make_cli_page
import pytest
import tutorials
import yaml

import murmuration as mm

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text()
REFERENCE = re.findall(
    r"^::: murmuration\.([\w.]+)$", "\n".join(p.read_text() for p in DOCS.glob("api/*.md")), re.MULTILINE
)


def test_every_public_name_has_its_place_in_the_reference():
    assert sorted(name for name in REFERENCE if "." not in name) == sorted(mm.__all__)
    assert len(REFERENCE) == len(set(REFERENCE))


def test_every_page_is_in_the_navigation():
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    pages |= {f"tutorials/{path.stem}.md" for path in tutorials.TUTORIALS}
    assert pages == set(re.findall(r"([\w/-]+\.md)$", NAVIGATION, re.MULTILINE))


def test_files_that_pages_name_exist():
    folders = "benchmarks|docs|examples|murmuration|tests|tools"
    names = re.compile(rf"(?<![\w/])((?:{folders})/[\w/-]+\.(?:py|md|json|c|sh))\b")
    pages = [*DOCS.rglob("*.md"), *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md")]
    named = {(page.name, name) for page in pages for name in names.findall(page.read_text())}
    if not (ROOT / "murmuration" / "studies").exists():  # the second floor can be removed
        named = {(page, name) for page, name in named if not re.search("/(applications|studies)/", name)}
    assert {(page, name) for page, name in named if not (ROOT / name).exists()} == set()


def test_relative_links_lead_to_files_of_the_repository():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    links = {(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())}
    assert {(page.name, link) for page, link in links if ":" not in link and not (page.parent / link).exists()} == set()


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda p: p.name)
def test_guides_are_short(page):
    if page.name in ("cli.md", "papers.md"):  # generated
        return
    lines = page.read_text().splitlines()
    assert len(lines) <= (90 if page.name == "faq.md" else 60)
    assert [line for line in lines if len(line) > 200] == []


def test_every_answer_of_the_faq_begins_with_the_answer_and_has_a_link():
    _, *sections = (DOCS / "faq.md").read_text().split("\n## ")
    assert len(sections) >= 12
    for section in sections:
        question, _, answer = section.partition("\n\n")
        assert question.endswith("?"), question
        assert answer.startswith("**"), question
        assert "](" in answer, question


def test_help_texts_are_written_as_markdown():
    assert make_cli_page.prose("*, or `head.*` of <data>") == "\\*, or `head.*` of &lt;data>"


def test_every_option_is_on_the_page_of_the_command_line():
    from typer.main import get_command

    from murmuration.cli.program import app

    sections = (DOCS / "cli.md").read_text().split("\n## ")
    for command, words in make_cli_page.commands_of(get_command(app), ["murmur"]):
        (text,) = [part for part in sections if part.startswith(" ".join(words) + "\n")]
        shown = {
            name for p in command.params if p.name not in make_cli_page.HIDDEN for name in p.opts if name[0] == "-"
        }
        assert [name for name in shown if not re.search(rf"`{name}[` ]", text)] == []


def test_data_files_of_the_repository_parse():
    paths = [*ROOT.glob("*.yml"), *ROOT.glob("*.yaml"), ROOT / "CITATION.cff", *ROOT.glob(".github/**/*.y*ml")]
    assert len(paths) >= 3
    for path in paths:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path.name


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MURMURATION_DOCS_RUN": "0", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"?(https?:[^\" >]+)", page.read_text())
        loaded += re.findall(r"<link[^>]*rel=\"?stylesheet[^>]*href=\"?(https?:[^\" >]+)", page.read_text())
        assert loaded == [], page.name
