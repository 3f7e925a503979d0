import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_twenty_kills_change_no_bit(tmp_path: Path):
    script = Path(__file__).with_name("kill_and_resume.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "20"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 20
    assert found["equal"] is True
    assert found["left_behind"] == []
