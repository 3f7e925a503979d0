"""Command lines of every command, with wrong and extreme values of every option that the parser itself lists.

`make_world` writes the files and runs that commands are called on: data of every format, finished and damaged runs,
files of the wrong kind. `command_line` begins with a command that works and changes it: values of options by their
placeholder (N, X, FILE, ...) and by the words of their help, options that contradict each other or belong to another
command, arguments that are missing, surplus or of another kind.
"""

import atexit
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer
from fuzz_files import EVIL, Rng, pick, png_of_size, rewrite_member
from PIL import Image
from safetensors.torch import save_file

import murmuration as mm
from murmuration.cli import main
from murmuration.cli.lists import LISTS
from murmuration.cli.program import _commands, app
from murmuration.models.nets import build_net
from murmuration.system.errors import Failure, Misuse

SMALL = "--members 1 --epochs 1 --net mlp:hidden=4"
BASES = [  # commands that work on the files of the world, each in a second or two
    f"train t.csv --target y {SMALL} --out new",
    f"train r.csv --target y {SMALL} --out new",
    f"train a.npz {SMALL} --out new",
    f"train t.parquet --target y {SMALL} --stream --out new",
    "train photos --net linear --members 1 --epochs 1 --out new",
    "train t.csv --target y --net logistic --out new",
    f"plan t.csv --target y {SMALL}",
    "plan photos --net linear --members 2 --epochs 1 --ranks 2",
    "resume run",
    "evaluate run",
    "evaluate run --on t.csv --out e.json",
    "evaluate pictures --ood photos",
    "calibrate run",
    "calibrate numbers",
    "predict run n.csv --out p.csv",
    "predict pictures photos --out p.npz --per-member",
    "monitor run n.csv --out m.html",
    "add-members run 1 --out new",
    "drop-members run 1 --out new",
    "merge run other --out new",
    "prune run --sparsity 0.5 --out new",
    "prune numbers --rule snr --sparsity 0.5 --finetune 1 --out new",
    "embed photos --net small-cnn --weights cnn.safetensors --out f.npz",
    f"compare t.csv --target y --recipes single,deep-ensemble {SMALL} --baselines none --out new",
    "audit probabilities.csv --out a.html",
    "audit probabilities.npz --json --out a.html",
    "audit moments.csv --group g --out a.json",
    "continual split:two-moons:2x1 --method lda,ncm --epochs 1 --examples 40 --out new",
    "continual t.csv u.csv --target y --scenario domain --method adam --epochs 1 --out new",
    "explore run similarity --examples 8",
    "explore run plane --grid 3 --examples 8",
    "explore run kernels --examples 4",
    "explore t.csv kernels --target y --net mlp:hidden=4 --members 2 --examples 4",
    "reproduce embedded --data two-moons --widths 0.25 --models 1 --arms independent --seeds 0 --epochs 1 --out new",
    "list recipes --json",
    "list corruptions",
    "selftest surplus",  # itself it takes most of a minute
    "superres train scenes --scale 2 --patches 8 --size 8 --members 1 --epochs 1 --recipe single --out new",
    "superres apply larger scenes/0.png --out new",
]
SLOW = {  # values that would compute for long, and be right to: fewer are drawn
    "--members": ["1", "2", "0", "-3", "x", "1e3", "", "1.5"],
    "--epochs": ["1", "0", "-1", "nan", "9" * 30, "1e2"],
    "--steps": ["1", "3", "0", "-1", "x"],
    "--folds": ["2", "1", "0", "-1", "99999", "x"],
    "--finetune": ["1", "0", "-1", "x"],
    "--samples": ["2", "0", "-1", "x"],
    "--runs": ["1", "0", "-1", "x"],
    "--grid": ["3", "0", "1", "-1", "x"],
    "--draws": ["1", "0", "-1", "x"],
    "--couplings": ["1", "2", "0", "-1", "x"],
    "--hidden": ["4", "0", "-1", "x"],
    "--patches": ["8", "0", "-1", "x"],
    "--seeds": ["0", "0,0", "-1", "x", ""],
    "--models": ["1", "0", "-1", "x", "1,1", ""],
    "--widths": ["0.25", "0", "-1", "nan", "x", ""],
    "--size": ["8", "0", "0x8", "8x", "-8", "8x9", "x", "9" * 30],
    "N": ["1", "0", "-1", "x", "100", ""],  # the argument of add-members; a member more takes its epochs
}
WHOLE = ["0", "1", "-1", "2", "7", str(2**31), str(2**63), str(2**70), "9" * 400, "x", "", " ", "1.5", "1e3", "nan"]
WHOLE += ["٣", "0x10", "1_000", "--json"]
NUMBERS = ["0", "1", "-1", "0.5", "0.1", "inf", "-inf", "nan", "1e39", "1e-45", "1e308", "1e400", "x", "", "0,5", "½"]
PLACES = [
    "t.csv",
    "r.csv",
    "n.csv",
    "t.parquet",
    "a.npz",
    "x.npy",
    "photos",
    "probabilities.csv",
    "moments.csv",
    "run",
    "other",
    "numbers",
    "pictures",
]
PLACES += [
    "larger",
    "damaged",
    "begun",
    "run/run.json",
    "run/members.safetensors",
    "notes.txt",
    "broken.json",
    "empty",
    "empty.csv",
    "noise.png",
]
PLACES += [
    "cnn.safetensors",
    "scenes",
    ".",
    "nowhere",
    "nowhere.csv",
    "no/where.html",
    "/dev/null",
    "~",
    "new",
    "digits",
    "two-moons",
    "hf:x",
    "-",
]
PLACES += [
    "",
    " ",
    "a\x01b",
    "z" * 300,
    "fifo.csv",
    "loop",
    "e.html",
    "e.json",
    "e.npz",
    "e.csv",
    "e.parquet",
    "E.HTML",
]
SETTINGS = [
    "every",
    "rank",
    "rate",
    "gamma",
    "init",
    "hidden",
    "dropout",
    "estimator",
    "bandwidth",
    "members",
    "frozen",
    "momentum",
    "coupling",
    "sharing",
]
SETTINGS += ["lengthscales", "cycles", "start", "width", "activation", "tau", "scale"]
NAMES = {  # option -> the list of `murmur list` that it takes names of
    "--recipe": "recipes",
    "--recipes": "recipes",
    "--sharing": "sharing",
    "--weights": "weights",
    "--coupling": "couplings",
    "--dynamics": "dynamics",
    "--optimizer": "optimizers",
    "--schedule": "schedules",
    "--sampler": "samplers",
    "--loss": "losses",
    "--net": "nets",
    "--baselines": "models",
    "--engine": "engines",
    "--calibrate": "calibrators",
    "--conformal": "conformal",
    "--only": "corruptions",
}
LARGE = re.compile("efficientnet|resnet|wide|hf:|timm:")  # networks that take seconds, or a download


# The files that commands are called on


def table_of(rows: int, seed: int, regression: bool) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, colour = rng.normal(size=rows), rng.choice(["red", "green", "blue"], rows)
    y = 2 * a + rng.normal(size=rows) if regression else np.where(a + rng.normal(size=rows) > 0, "yes", "no")
    return pd.DataFrame({"a": a.round(4), "b": rng.integers(0, 9, rows), "colour": colour, "y": y})


def make_world(folder: Path) -> None:
    """Data of every format, runs, and files of the wrong kind."""
    rng, here = np.random.default_rng(0), Path.cwd()
    os.chdir(folder)  # runs name their data by relative paths, and are copied with it
    try:
        table_of(220, 0, False).to_csv("t.csv", index=False)
        table_of(60, 1, False).to_csv("u.csv", index=False)
        table_of(220, 2, True).to_csv("r.csv", index=False)
        table_of(20, 3, False).drop(columns="y").to_csv("n.csv", index=False)
        table_of(220, 0, False).to_parquet("t.parquet")
        np.savez("a.npz", x=rng.normal(size=(60, 4)), y=rng.integers(0, 2, 60))
        np.save("x.npy", rng.normal(size=(60, 4)))
        np.save("y.npy", rng.integers(0, 2, 60))
        draw_images("photos/cat", "photos/dog", count=16, side=8)
        draw_images("scenes", count=8, side=40)
        write_predictions_of_others()
        write_wrong_kinds()
        small: dict[str, Any] = {"members": 2, "epochs": 1, "progress": False}
        mm.fit("mlp:hidden=4", mm.open_data("t.csv", target="y"), out="run", **small)
        mm.fit("mlp:hidden=4", mm.open_data("t.csv", target="y"), out="other", seed=1, **small)
        mm.fit("mlp:hidden=4", mm.open_data("r.csv", target="y"), recipe="bayes", out="numbers", **small)
        mm.fit("linear", mm.open_data("photos"), out="pictures", **small)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            words = "superres train scenes --patches 8 --size 8 --members 1 --epochs 1 --recipe single --out larger"
            assert main(words.split()) == 0
        shutil.copytree("run", "damaged")
        Path("damaged/run.json").write_text(Path("run/run.json").read_text().replace('"seed": 0', '"seed": 1'))
        Path("begun/checkpoints").mkdir(parents=True)
        Path("begun/run.json").write_text("{}")
        for page in Path().rglob("report.html"):
            page.unlink()  # the world is copied for every case
    finally:
        os.chdir(here)


def draw_images(*folders: str, count: int, side: int) -> None:
    rng = np.random.default_rng(1)
    for i in range(count):
        place = Path(folders[i % len(folders)])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(place / f"{i}.png")


def write_predictions_of_others() -> None:
    rng = np.random.default_rng(2)
    probs, labels = rng.dirichlet([1, 1], 60), rng.integers(0, 2, 60)
    columns = {"prob_a": probs[:, 0], "prob_b": probs[:, 1], "label": np.array(["a", "b"])[labels]}
    pd.DataFrame(columns).to_csv("probabilities.csv", index=False)
    np.savez("probabilities.npz", probs=np.stack([probs, probs[:, ::-1]]), y=labels)
    moments = {"mean": rng.normal(size=60), "std": rng.random(60) + 0.5, "y": rng.normal(size=60)}
    pd.DataFrame({**moments, "g": ["u", "v"] * 30}).to_csv("moments.csv", index=False)


def write_wrong_kinds() -> None:
    Path("notes.txt").write_text("not data\n")
    Path("broken.json").write_text("{")
    Path("empty").mkdir()
    Path("empty.csv").write_text("")
    Path("noise.png").write_bytes(png_of_size(30_000, 30_000))
    save_file(dict(build_net("small-cnn", (3, 8, 8), 2).state_dict()), "cnn.safetensors")
    os.mkfifo("fifo.csv")
    Path("loop").symlink_to("loop")
    shutil.copy("a.npz", "e.npz")
    rewrite_member(np.random.default_rng(3), Path("e.npz"))


@lru_cache
def world() -> Path:
    """The folder of the world, made once for this process and its forks, and removed with this process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-world-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_world(folder)
    return folder


def copy_world(folder: Path) -> None:
    for place in world().iterdir():
        if place.is_fifo():
            os.mkfifo(folder / place.name)
        elif place.is_dir() and not place.is_symlink():
            shutil.copytree(place, folder / place.name, dirs_exist_ok=True)
        else:
            shutil.copy(place, folder / place.name, follow_symlinks=False)


# Command lines


@lru_cache
def parsers() -> dict[str, Any]:
    """Every command by the words that call it."""
    return {path.removeprefix("murmur "): found for path, found in _commands(typer.main.get_command(app), "murmur")}


@lru_cache
def known_names(what: str) -> list[str]:
    return [name.partition(" ")[0] for name in LISTS[what]()]


def command_of(base: str) -> str:
    return next(name for name in sorted(parsers(), key=len, reverse=True) if f"{base} ".startswith(f"{name} "))


def value_for(rng: Rng, parameter: Any) -> str:
    """A value of an option or argument, usual or not, by its name, its placeholder and the words of its help."""
    name, kind = parameter.opts[0], parameter.metavar or ""
    if name in SLOW or (kind in SLOW and not name.startswith("-")):
        return str(pick(rng, SLOW.get(name) or SLOW[kind]))
    if rng.random() < 0.1:
        return str(pick(rng, EVIL))
    if kind == "N":
        return str(pick(rng, WHOLE))
    if kind == "X":
        return str(pick(rng, NUMBERS))
    if re.search("FILE|DIR|DATA|RUN|FOLDER|IMAGE|STREAM|WHAT", kind) and rng.random() < 0.8:
        return str(pick(rng, PLACES))
    return text_for(rng, name, str(getattr(parameter, "help", "") or ""))


def text_for(rng: Rng, option: str, about: str) -> str:
    """A name that the option knows, a word of its help, or a column; sometimes with settings, or several of them."""
    words = known_names(NAMES[option]) if option in NAMES and rng.random() < 0.7 else re.findall(r"[\w.*=:-]+", about)
    words = [word for word in words if not LARGE.search(word)]
    found = str(pick(rng, [*(words or ["x"]), *(["a", "y", "colour", "nope"] if rng.random() < 0.3 else [])]))
    if rng.random() < 0.3:
        pairs = [f"{pick(rng, SETTINGS)}={pick(rng, [*NUMBERS, *WHOLE[:6], found])}" for _ in range(rng.integers(1, 3))]
        found += pick(rng, [":", ":", ",", "="]) + ",".join(pairs)
    return ",".join([found] * int(rng.integers(1, 3))) if rng.random() < 0.1 else found


def command_line(rng: Rng, hostile: bool) -> list[str]:
    """The words of a command that works, or of one that was changed in one to three places."""
    base = str(pick(rng, BASES))
    words = shlex.split(base)
    if hostile:
        for _ in range(int(rng.integers(1, 4))):
            words = changed(rng, words, command_of(base))
    return [word.replace("\x00", "") for word in words]


def changed(rng: Rng, words: list[str], command: str) -> list[str]:
    """The words with one change: an option more, an argument of another kind, a word less."""
    own = [each for each in parsers()[command].params if each.opts[0].startswith("-")]
    arguments = [each for each in parsers()[command].params if not each.opts[0].startswith("-")]
    first, way = len(command.split()), rng.random()
    if way < 0.70 and own:
        return [*words, *written(rng, pick(rng, own))]
    if way < 0.74:
        other = parsers()[pick(rng, sorted(parsers()))].params
        return [*words, *written(rng, pick(rng, other))] if other else words
    if way < 0.86 and arguments and len(words) > first:
        place = first + int(rng.integers(0, min(len(arguments), len(words) - first)))
        return [*words[:place], value_for(rng, arguments[place - first]), *words[place + 1 :]]
    if way < 0.92 and len(words) > first:
        place = int(rng.integers(first, len(words)))
        return words[:place] + words[place + 1 :]
    if way < 0.96:
        return [*words, str(pick(rng, [*PLACES, *EVIL]))]
    return [*words, str(pick(rng, ["--help", "--nope", "--nope=1", "--", "-", "-x", "--json=1", "--version", "--out"]))]


def written(rng: Rng, parameter: Any) -> list[str]:
    """An option with a value, as two words or one; switches alone."""
    names = [*parameter.opts, *parameter.secondary_opts]
    name = str(pick(rng, names))
    if getattr(parameter, "is_flag", False):
        return [name]
    value = value_for(rng, parameter)
    return [f"{name}={value}"] if rng.random() < 0.2 else [name, value]


# The judge


def files_of(folder: Path) -> set[str]:
    """The paths below a folder, without locks and caches of Python."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def check_command(arguments: list[str], code: int, out: str, err: str, folder: Path, before: set[str]) -> None:
    """Refuse a command that ended badly; one that was refused is raised again as its kind of error."""
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    assert code in (0, 1, 2), f"exit code {code}: {err[-300:]}"
    assert "Traceback" not in out + err, f"a traceback: {err[-300:]}"
    assert "MURMUR_DEBUG" not in err, f"an internal error: {err[-400:]}"
    left = sorted(files_of(folder) - before)
    run = folder / "new" / "run.json"
    if not code:
        assert not errors, f"exit code 0 and {errors[0]}"
        if "--json" in arguments and "--help" not in arguments:
            json.loads(out)
        if run.exists():
            assert json.loads(run.read_text()).get("status", "complete") == "complete", "exit code 0, an unfinished run"
        return
    assert len(errors) == 1, f"{len(errors)} lines of error: {err[-300:]}"
    assert not left or "resume" in err or "same command" in err, f"{left[:3]} left behind: {errors[0][:300]}"
    raise (Misuse if code == 2 else Failure)(errors[0].removeprefix("error: "))


def command(rng: Rng, folder: Path, hostile: bool) -> Callable[[], Any]:
    """A command line in this process, on a copy of the world."""
    copy_world(folder)
    arguments, before = command_line(rng, hostile), files_of(folder)

    def action() -> Any:
        here, out, err = Path.cwd(), io.StringIO(), io.StringIO()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(arguments))
        finally:
            os.chdir(here)
        try:
            check_command(arguments, code, out.getvalue(), err.getvalue(), folder, before)
        except AssertionError as error:
            raise AssertionError(f"{error} of murmur {shlex.join(arguments)[:300]}") from None

    return action
