"""The table of formats: one row is all that a new format needs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from murmuration.cli import main
from murmuration.data import formats, open_data, open_inputs
from murmuration.data.formats import FORMATS, Format, format_of, format_usage, has_suffix, load_source, resolve
from murmuration.data.raw import LoadOptions, RawData, RawPart
from murmuration.system.errors import Misuse


def load_numbers(path: Path, options: LoadOptions) -> RawData:
    """Lines of numbers: the last of each is the target."""
    rows = np.loadtxt(path)
    return RawData({"all": RawPart(rows[:, :-1], rows[:, -1])}, "regression")


NEW = Format("FILE.numbers", "lines of numbers, the target last", has_suffix(".numbers"), load_numbers)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "a.numbers", np.random.default_rng(0).normal(size=(20, 3)))
    return tmp_path / "a.numbers"


def test_a_new_format_is_one_row(numbers: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with pytest.raises(
        Misuse, match=r"has the suffix '.numbers': expected FILE.csv, FILE.tsv, .* FILE.npz, FILE.npy, a folder"
    ):
        open_data(numbers)
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS[:5], NEW, *FORMATS[5:]))
    data = open_data(numbers)
    assert (data.task, len(data.train), data.input_shape) == ("regression", 14, (2,))
    assert data.source is not None
    assert open_data(**data.source).fingerprint == data.fingerprint
    assert len(open_inputs(str(numbers), preparation=data.preparation)) == 20
    with pytest.raises(Misuse, match=r"no file or folder 'b\.csv': expected .*FILE\.npy, FILE\.numbers, a folder"):
        open_data("b.csv")
    with pytest.raises(Misuse, match=r"target='y' names the column of a table, but .* is not one"):
        open_data(numbers, target="y")
    assert main(["list", "data", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["FILE.numbers"] == {"description": NEW.about}


def test_every_format_is_in_messages_and_lists(capsys) -> None:
    everything = format_usage("name", "path", "object")
    assert all(each.usage in everything for each in FORMATS)
    with pytest.raises(Misuse, match=r"^a set is not data: expected ") as error:
        open_data({1, 2})
    assert str(error.value).endswith(everything)
    assert main(["list", "data"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(each.usage in shown for each in FORMATS if each.kind != "object")


def test_help_lists_the_formats_without_loading_torch() -> None:
    code = "import sys; from murmuration.cli.options import DATA_HELP; print(DATA_HELP, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert format_usage("name", "path")[1:] in done.stdout
    assert done.stdout.split()[-1] == "False"


def test_a_name_is_not_taken_for_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of the table: a folder called digits does not hide the built-in data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    monkeypatch.setattr(formats, "FORMATS", FORMATS[::-1])
    assert resolve("digits") == "digits"
    assert format_of(resolve("hf:some/name")).usage == "hf:NAME"
    assert resolve("./digits") == Path("digits")
    assert len(load_source("digits", LoadOptions())[1].parts["all"]) == 1797
