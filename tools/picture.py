"""Take docs/report.png of the report of `make demo`, and write docs/report.json: the scores that the picture shows.

python tools/picture.py runs/demo      needs chromium
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
SIZE = "1000,1500"


def shown(demo: Path) -> dict[str, Any]:
    """Return the data and the scores of a comparison."""
    record = json.loads((demo / "results.json").read_text())
    scores = {name: result["metrics"]["nll"]["value"] for name, result in record["results"].items()}
    return {"fingerprint": record["data"]["fingerprint"], "nll": scores}


def main(demo: Path) -> None:
    page = f"{(demo / 'report.html').resolve().as_uri()}#light"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=15000"]
    picture = f"--screenshot={DOCS / 'report.png'}"
    subprocess.run(["chromium", *options, f"--window-size={SIZE}", picture, page], check=True)
    (DOCS / "report.json").write_text(f"{json.dumps(shown(demo), indent=2)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
