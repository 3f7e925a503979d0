"""Bytes of communication that `murmur plan` predicts against those that processes count."""

import json
import os
import subprocess
import sys
from pathlib import Path

import counted_bytes
import pytest
from counted_bytes import NET, RECIPES, SETTINGS
from processes import digits

import murmuration as mm


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_predicted_bytes_are_those_that_the_first_process_receives(size, tmp_path: Path):
    script = Path(counted_bytes.__file__)
    command = [sys.executable, str(script), str(size), str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    counted = json.loads((tmp_path / "bytes-0.json").read_text())
    predicted = {name: mm.estimate_costs(NET, digits(), recipe=name, ranks=size, **SETTINGS) for name in RECIPES}
    assert {name: found.bytes_per_step for name, found in predicted.items()} == counted
    assert counted["deep-ensemble"] == 0 < min(counted[name] for name in RECIPES[1:])
