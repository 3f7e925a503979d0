"""Hooks of mkdocs: tutorials are run and added, links that leave docs/ go to the repository or to a tutorial.

`MURMURATION_DOCS_RUN=0` leaves out the outputs of the tutorials, for a quick look at a page.
"""

import logging
import os
import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks")  # with --strict a warning ends the build
ROOT = Path(__file__).parents[1]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
LINK = re.compile(r"(\]\()([^)\s#]+)([^)\s]*\))")
SHIM = re.compile(r'"https://unpkg.com/iframe-worker/shim"')  # search without a server, as material includes it
PLOTLY = ROOT / "murmuration" / "reports" / "plotly" / "plotly-cartesian.min.js"


def on_config(config: Any) -> Any:
    """Name the repository, which is written once, in pyproject.toml."""
    config.repo_url, config.repo_name = REPOSITORY, "Repository"
    config.edit_uri = ""
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the tutorials as pages and as notebooks, and the script that draws their figures."""
    sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
    import tutorials

    executed = os.environ.get("MURMURATION_DOCS_RUN") != "0"
    for path in tutorials.TUTORIALS:
        name = f"tutorials/{path.stem}"
        files.append(File.generated(config, f"{name}.md", content=tutorials.page(path, executed)))
        files.append(File.generated(config, f"{name}.ipynb", content=tutorials.notebook(path)))
    files.append(File.generated(config, "assets/plotly.js", abs_src_path=str(PLOTLY)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point relative links to files that are not pages at the repository, those to tutorials at their pages."""
    tutorials = {f"examples/{name[10:-3]}.py": name for name in files.src_uris if re.match(r"tutorials/\d.*md$", name)}
    folder = posixpath.dirname(page.file.src_uri)

    def resolved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if tutorials.get(target, page.file.src_uri) != page.file.src_uri:
            return f"{match[1]}{posixpath.relpath(tutorials[target], folder or '.')}{match[3]}"
        if "://" in match[2] or (target.startswith("docs/") and not target.endswith(".py")):
            return match[0]
        if not (ROOT / target).exists():
            log.warning("Doc file '%s' contains a link '%s', but there is no such file.", page.file.src_uri, match[2])
        return f"{match[1]}{REPOSITORY}/blob/main/{target}{match[3]}"

    return LINK.sub(resolved, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Add the scripts of figures to pages that have some."""
    if "data-figure=" not in html:
        return html
    up = "../" * page.file.src_uri.count("/")
    return f'{html}\n<script src="{up}assets/plotly.js"></script>\n<script src="{up}figures.js"></script>\n'


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Take the script that searches without a server from this site."""
    return SHIM.sub(f'"{"../" * page.file.src_uri.count("/")}offline-search.js"', output)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Do the same for the page of a missing page."""
    return SHIM.sub('"offline-search.js"', output)
