"""Commands that help texts and pages show, a folder with all files they name, and a way to run them in little time."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from murmuration.cli import main
from murmuration.cli.program import app
from murmuration.models.estimators.table import MODELS
from murmuration.models.nets import build_net
from murmuration.system.files import write_tensors
from murmuration.system.plugins import plugins

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "cli.md"),  # which holds the help texts
    *sorted((ROOT / "murmuration").rglob("*.md")),
]
PROGRAMS = sorted(path for folder in ("examples", "benchmarks", "docs") for path in (ROOT / folder).glob("*.py"))
RUNS = {
    "digits": ("digits", "--net", "mlp", "--trajectory", "every-epoch"),
    "prices": ("prices.csv", "--target", "price"),
    "churn-deep-ensemble-1": ("churn.csv", "--target", "churned"),
    "photos": ("photos",),
    "pretrained": ("photos", "--features", "efficientnet-lite0"),
    "cifar10": ("cifar-10-batches-bin", "--net", "small-cnn"),
    "bayes": ("digits", "--net", "mlp", "--recipe", "bayes"),
    "path": ("digits", "--net", "mlp", "--recipe", "bayes", "--trajectory", "every-epoch"),
    "ensemble/member-0000": ("digits", "--net", "mlp"),
    "ensemble/member-0001": ("digits", "--net", "mlp", "--first-member", "2"),
    "embedded": ("digits", "--net", "mlp", "--recipe", "batch-ensemble-independent"),
}
FAST = {  # options that make a command quick; they replace those of the command
    "train": ("--members", "2", "--epochs", "1", "--engine", "loop"),
    "compare": ("--members", "2", "--epochs", "1", "--engine", "loop"),
    "plan": ("--epochs", "1"),
    "embed": ("--size", "32"),
}
SMALL_DATA = {
    "prices.csv",
    "churn.csv",
    "patients.csv",
    "visits.csv",
    "sales.csv",
    "tokens.npz",
    "features.npz",
    "x.npy",
    "energy.csv",
    "photos",
    "mnist",
    "cifar-10-batches-bin",
}  # else digits
FAST_SHIFT = ("--severities", "1", "--shift-examples", "8")


def program() -> Any:
    return typer.main.get_command(app)


def commands_below(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command, and every group of commands, with the words that call it."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands_below(each, f"{path} {name}".strip())


def help_examples() -> list[str]:
    """The examples of all help texts."""
    texts = [re.sub(r"\[/?cyan\]", "", command.help or "") for _, command in commands_below(program())]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines() if line.startswith("murmur ")))


def is_first_floor(text: str) -> bool:
    """Whether a command belongs to the tool itself; `tests/studies` tests all others with the second floor."""
    names = program().commands.keys() - plugins("murmuration.commands").keys()
    word = (text.split()[1:] or ["help"])[0]
    return word in names or word == "help" or word.startswith("-")


def all_commands() -> list[str]:
    """The examples of help texts, and the complete commands of pages and programs."""
    return [
        *help_examples(),
        *(command for page in PAGES for command in page_commands(page)),
        *(command for path in PROGRAMS for command in docstring_commands(path)),
        *(command for page in PAGES for command in inline_commands(page) if is_complete(command)),
    ]


def page_commands(page: Path) -> list[str]:
    """The commands in the fenced blocks of a page, without comments; a line that ends in a backslash goes on."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [re.sub(r"\s+#.*", "", line.strip()) for line in lines if line.strip().startswith("murmur ")]


def page_programs(page: Path) -> list[str]:
    """The Python programs in the fenced blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def docstring_commands(program: Path) -> list[str]:
    """The commands in the docstring of a program."""
    text = ast.get_docstring(ast.parse(program.read_text())) or ""
    return [line.strip() for line in text.splitlines() if line.strip().startswith("murmur ")]


def inline_commands(page: Path) -> list[str]:
    """The commands in the running text of a page."""
    return [" ".join(text.split()) for text in re.findall(r"`(murmur [^`]*)`", page.read_text())]


def is_complete(command: str) -> bool:
    """Whether a command of the running text has arguments, no placeholders (RUN, DIR, ...) and no parts left out."""
    return len(command.split()) > 2 and "..." not in command and not re.search(r"\b[A-Z]{2,}\b", command)


def parse(text: str) -> None:
    """Refuse a command line with unknown commands, unknown options or values of the wrong type."""
    words, command, parent = shlex.split(text)[1:], program(), None
    while getattr(command, "commands", None) and words:
        parent = command.make_context("murmur", [], parent=parent, resilient_parsing=True)
        command = command.commands[words.pop(0)]
    command.make_context("murmur", words, parent=parent)


def check_options(text: str) -> None:
    """Refuse a command line, complete or not, whose command or options do not exist."""
    words, command = shlex.split(text.replace("...", ""))[1:], program()
    while words and getattr(command, "commands", None) and not words[0].isupper() and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
    assert not unknown, f"{text}: {unknown[0]} is no option"


def fast_options(name: str, words: list[str]) -> list[str]:
    """The options that make a command quick, as far as they fit to it."""
    faster = [*FAST.get(name, ()), *(FAST_SHIFT if {"--corruptions", "--only"} & set(words) else ())]
    if name in ("train", "compare"):
        few = SMALL_DATA & {word.strip("/") for word in words}
        faster += ["--batch-size", "8" if few else "32" if "csgmcmc" in words else "64"]  # its cycles need steps
    if "--features" in words:
        faster += ["--size", "32"]
    if "--recipe" in words and "--members" not in words and "--members" in faster:
        del faster[faster.index("--members") : faster.index("--members") + 2]  # the recipe may have its own number
    if "--net" in words and words[words.index("--net") + 1] in MODELS:  # no network
        pairs = zip(faster[::2], faster[1::2], strict=True)
        faster = [word for pair in pairs if pair[0] not in ("--epochs", "--batch-size") for word in pair]
    return faster


def quick(text: str, number: int) -> list[str]:
    """The arguments of a command line with less to compute and with an --out of its own."""
    words = shlex.split(text)[1:]
    return with_options(words, fast_options(words[0], words), number)


def with_options(words: list[str], faster: list[str], number: int) -> list[str]:
    """Replace options of a command line by others, and its outputs by numbered ones; expand its wildcards."""
    for option in faster[::2]:
        while option in words:
            del words[words.index(option) : words.index(option) + 2]
    for option in ("--out", "--sheet"):
        if option in words:
            place = words.index(option) + 1
            words[place] = f"out-{number}{Path(words[place]).suffix}"
    found = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
    return [word for each in found for word in each] + faster


def make_workspace(folder: Path) -> None:
    """Small files and runs under the names that the examples use; the folder is the working directory."""
    rng = np.random.default_rng(0)
    write_tables(folder, rng)
    write_tokens(folder, np.random.default_rng(1))
    write_predictions(folder, rng)
    write_features(folder, np.random.default_rng(2))
    write_images(folder, rng)
    for name, words in RUNS.items():
        faster = fast_options("train", list(words))
        assert main(["train", *words, *faster, "--out", f"runs/{name}", "--json"]) == 0


def write_tables(folder: Path, rng: np.random.Generator) -> None:
    size, age = rng.uniform(20, 200, 240), rng.integers(0, 90, 240)
    region = np.array(["north", "south"])[rng.integers(0, 2, 240)]
    homes = pd.DataFrame({"size": size, "age": age, "region": region})
    words = rng.choice(["late", "bill", "call", "asked", "twice", "moved"], (240, 4))
    named = homes.assign(
        id=np.arange(240), customer_id=[f"C{i:06}" for i in range(240)], note=[" ".join(row) for row in words]
    )
    named.to_csv(folder / "new.csv", index=False)
    named.assign(churned=np.where(age > 40, "yes", "no")).to_csv(folder / "churn.csv", index=False)
    priced = homes.assign(price=3 * size - age + rng.normal(0, 5, 240))
    for name in ("prices.csv", "newer.csv"):
        priced.to_csv(folder / name, index=False)
    priced.rename(columns={"price": "target"}).to_csv(folder / "energy.csv", index=False)
    ill = homes.assign(outcome=np.where(size > 100, "ill", "well"))
    ill.to_csv(folder / "patients.csv", index=False)
    ill.assign(patient=np.arange(240) // 4, row=np.arange(240)).to_csv(folder / "visits.csv", index=False)
    days = pd.date_range("2026-01-01", periods=240)
    homes.assign(sales=3 * size, day=days).to_csv(folder / "sales.csv", index=False)
    priced[:20].to_csv(folder / "later.csv", index=False)
    for name in ("january.csv", "february.csv", "march.csv"):
        homes.assign(kind=np.where(size > 100, "large", "small")).to_csv(folder / name, index=False)


def write_tokens(folder: Path, rng: np.random.Generator) -> None:
    tokens = rng.integers(0, 30, (240, 5))
    np.savez(folder / "tokens.npz", x=tokens, y=(tokens < 15).sum(1) > 2)
    net = "nn.Sequential(nn.Embedding(30, 4), nn.Flatten(), nn.Linear(20, 2))"
    (folder / "own_networks.py").write_text(f"from torch import nn\n\n\ndef Classifier():\n    return {net}\n")


def write_features(folder: Path, rng: np.random.Generator) -> None:
    np.savez(folder / "features.npz", x=rng.normal(0, 1, (60, 8)), y=np.arange(60) % 2, classes=["a", "b"])
    np.save(folder / "x.npy", rng.normal(0, 1, (60, 8)))
    np.save(folder / "y.npy", np.arange(60) % 2)
    write_tensors(folder / "resnet20.safetensors", build_net("resnet20", (3, 32, 32), 2).state_dict())


def write_predictions(folder: Path, rng: np.random.Generator) -> None:
    prob = rng.uniform(0, 1, 120)
    label = np.where(rng.uniform(0, 1, 120) < prob, "a", "b")
    size = np.array(["small", "large"])[rng.integers(0, 2, 120)]
    for name, noise in (("forest.csv", 0.0), ("boosting.csv", 0.1)):
        p = np.clip(prob + rng.normal(0, noise, 120), 0.01, 0.99)
        columns = {"prob_a": p, "prob_b": 1 - p, "label": label, "outcome": label, "size": size}
        pd.DataFrame(columns).to_csv(folder / name, index=False)
    probs = np.stack([np.stack([prob, 1 - prob], -1)] * 3)
    np.savez(folder / "members.npz", probs=probs, y=(label == "b").astype(int))
    np.savez(folder / "unlabelled.npz", probs=probs)
    pd.DataFrame({"outcome": (label == "b").astype(int)}).to_csv(folder / "truth.csv", index=False)


def write_images(folder: Path, rng: np.random.Generator) -> None:
    from PIL import Image

    def picture(path: Path, side: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)

    for i in range(48):
        for place in ("photos", "new-photos", "other-photos"):
            picture(folder / place / "ab"[i % 2] / f"{i}.png", 12)
    for i in range(6):
        picture(folder / "my-photos" / f"{i}.png", 48)
    for name in ("photo.png", "one.jpg", "two.jpg"):
        picture(folder / name, 20)
    write_binaries(folder, rng)


def write_binaries(folder: Path, rng: np.random.Generator) -> None:
    """Folders in the formats of CIFAR-10, CIFAR-10-C and MNIST."""
    for place, names in (("cifar-10-batches-bin", [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]),):
        (folder / place).mkdir()
        for name in names:
            records = rng.integers(0, 256, (20, 3073), dtype=np.uint8)
            records[:, 0] = np.arange(20) % 10
            (folder / place / name).write_bytes(records.tobytes())
    (folder / "CIFAR-10-C").mkdir()
    np.save(folder / "CIFAR-10-C" / "fog.npy", rng.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8))
    np.save(folder / "CIFAR-10-C" / "labels.npy", np.arange(50, dtype=np.uint8) % 10)
    (folder / "mnist").mkdir()
    for part in ("train", "t10k"):
        images = bytes((0, 0, 8, 3)) + np.array([100, 28, 28], ">u4").tobytes()
        images += rng.integers(0, 256, 100 * 28 * 28, dtype=np.uint8).tobytes()
        labels = bytes((0, 0, 8, 1)) + np.array([100], ">u4").tobytes() + bytes(i % 10 for i in range(100))
        (folder / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(labels)
