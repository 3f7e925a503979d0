"""Every command of the second floor that help texts and pages show parses and runs."""

import shlex
import subprocess
import sys

import documented_commands as documented
import pytest

from murmuration.cli import main

COMMANDS = [command for command in documented.all_commands() if not documented.is_first_floor(command)]
FAST = {  # options that make a command quick; they replace those of the command
    "prune": ("--finetune", "1"),
    "explore": ("--examples", "4"),
    "explore plane": ("--examples", "4", "--grid", "3"),
    "explore sizes": ("--examples", "4", "--samples", "2"),
    "explore factorial": ("--examples", "4", "--runs", "1", "--rates", "0.001", "--epochs", "1"),
    "explore uncertainty": ("--examples", "4", "--samples", "2"),
    "reproduce bayes-cnn": (
        "--epochs",
        "2",
        "--train",
        "128",
        "--examples",
        "20",
        "--seeds",
        "0",
        "--methods",
        "bayes",
        "--device",
        "cpu",
    ),
    "reproduce embedded": (
        *("--epochs", "1", "--widths", "0.5", "--models", "1,2", "--arms", "naive", "--seeds", "0"),
        *("--parts", "panels"),
    ),
    "reproduce hcl": ("--epochs", "1", "--train", "32", "--seeds", "0", "--methods", "lda", "--parts", "streams"),
    "reproduce longtail": (
        "--epochs",
        "1",
        "--examples",
        "20",
        "--seeds",
        "0",
        "--methods",
        "cross-entropy",
        "--imbalance",
        "3",
        "--net",
        "small-cnn",
        "--device",
        "cpu",
    ),
    "reproduce forde": (
        *("--net", "mlp", "--epochs", "1", "--members", "2", "--examples", "20", "--seeds", "0"),
        *("--parts", "tables", "--methods", "deep-ensemble", "--device", "cpu"),
    ),
    "reproduce landscape": (
        *("--epochs", "1", "--members", "2", "--examples", "20", "--parts", "similarity", "--net", "small-cnn"),
    ),
    "continual": (
        *("--epochs", "1", "--couplings", "2", "--hidden", "4", "--settle", "1", "--members", "2"),
        *("--examples", "20", "--batch-size", "10"),
    ),
    "superres train": ("--members", "2", "--epochs", "1", "--patches", "24", "--size", "6"),
}


def quick(text: str, number: int) -> list[str]:
    """Return the arguments of a command line with less to compute and numbered outputs."""
    words = shlex.split(text)[1:]
    name = " ".join(words[:2]) if words[0] in ("superres", "reproduce") else words[0]
    if name == "explore" and f"explore {words[2]}" in FAST:
        name = f"explore {words[2]}"
    faster = list(FAST.get(name, ()))
    words = ["cifar-10-batches-bin" if word in ("cifar-100-binary", "imagenet") else word for word in words]
    for option in ("--device", "--ood", "--cifar-c") if name in ("reproduce landscape", "reproduce forde") else ():
        if option in words:  # a GPU, and files of its own
            del words[words.index(option) : words.index(option) + 2]
    if "--recipe" in words and "--members" in faster:  # the recipe may have its own number
        del faster[faster.index("--members") : faster.index("--members") + 2]
    if "--tolerance" in words:
        faster += ["--tolerance", "0.9"]  # a run of one epoch loses much by pruning
    if name == "prune" and "--finetune" not in words:
        faster = faster[2:]
    if name == "superres train" and words[2:3] != ["my-photos"]:
        words.insert(2, "my-photos")  # the photographs it would take are large
    return documented.with_options(words, faster, number)


def test_commands_are_those_of_the_second_floor():
    names = {shlex.split(command)[1] for command in COMMANDS}
    assert names == {"continual", "explore", "prune", "reproduce", "superres"}


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_commands_parse(command):
    documented.parse(command)


@pytest.mark.parametrize("page", documented.PAGES, ids=lambda p: p.name)
def test_commands_in_the_text_have_options_that_exist(page):
    for command in documented.inline_commands(page):
        documented.check_options(command)


def test_the_page_of_the_command_line_is_current():
    code = "import make_cli_page as m, sys; sys.exit(m.page() != m.PAGE.read_text(encoding='utf-8'))"
    search = {"PYTHONPATH": f"{documented.ROOT}:{documented.ROOT / 'docs'}", "PYTHONIOENCODING": "utf-8", "PATH": ""}
    ended = subprocess.run([sys.executable, "-c", code], env=search, capture_output=True, text=True)
    assert ended.returncode == 0, f"run python docs/make_cli_page.py {ended.stderr}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        documented.make_workspace(folder)
        assert main(["superres", "train", "my-photos", *FAST["superres train"], "--out", "runs/sr", "--json"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_documented_commands_run(command, workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    number = len(list(workspace.glob("out-*")))
    code = main(quick(command, number))
    assert code == 0, capsys.readouterr().err
