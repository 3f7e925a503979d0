"""Write requirements.lock: every package that the tests run with, by version and by the SHA-256 of its files.

    make lock

Versions are those of this environment. The hashes are of all files that the package index has for a version, so that
the lock is the same for other systems. torch is left out: its build for the CPU and the default one, which needs
packages of CUDA, are different files under one version, so it is pinned by constraints.txt alone.
"""

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
APART = ("torch", "torch-murmuration")  # not in the lock
ENTRY = re.compile(r"^[A-Za-z0-9._-]+==\S+ \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)
OPTIONS = (
    *("--quiet", "--generate-hashes", "--extra", "dev", "--build-deps-for", "editable", "--unsafe-package", "torch"),
    *("--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-annotate", "--strip-extras"),
)
HEAD = "# Made by `make lock`: what CI installs, see the Makefile. torch is pinned by constraints.txt.\n"


def run(*words: str | Path) -> str:
    return subprocess.run([*map(str, words)], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def main() -> None:
    frozen = run(sys.executable, "-m", "pip", "freeze", "--all", *(f"--exclude={name}" for name in (*APART, "pip")))
    with tempfile.TemporaryDirectory() as folder:
        place, output = Path(folder), Path(folder) / "out"
        (place / "installed.txt").write_text(frozen)
        venv.create(place / "tools", with_pip=True)
        python = place / "tools" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "pip-tools")
        constraints = ("--constraint", place / "installed.txt", "--constraint", "constraints.txt")
        run(python, "-m", "piptools", "compile", *OPTIONS, *constraints, "--output-file", output, "pyproject.toml")
        LOCK.write_text(HEAD + "".join(ENTRY.findall(output.read_text())))


if __name__ == "__main__":
    main()
