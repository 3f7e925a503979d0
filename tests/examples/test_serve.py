"""The service of the examples answers with the predictions of the ensemble, and refuses in one line."""

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pandas as pd
import pytest

import murmuration as mm

ROWS = pd.DataFrame({"size": range(40, 140), "region": ["north", "south"] * 50})
EXAMPLE = Path(__file__).parents[2] / "examples" / "serve.py"
SEND = build_opener(ProxyHandler({})).open


@pytest.fixture
def address(tmp_path):
    """The address of a server that runs in a thread."""
    table = ROWS.assign(price=3.0 * ROWS["size"])
    mm.fit("mlp", table, target="price", members=1, recipe="single", epochs=1, posthoc=None, out=tmp_path / "run")
    spec = importlib.util.spec_from_file_location("serve", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.server(str(tmp_path / "run"), 0)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_port}", tmp_path / "run"
    server.shutdown()
    thread.join()
    server.server_close()


def test_rows_are_answered_as_predict_does_also_at_once(address):
    url, run = address
    expected = mm.load(run).predict(ROWS).to_pandas()
    bodies = [json.dumps(rows.to_dict("records")).encode() for rows in (ROWS[:3], ROWS[3:5], ROWS[5:6])]
    with ThreadPoolExecutor(3) as pool:
        answers = [json.loads(answer.read()) for answer in pool.map(lambda body: SEND(url, body), bodies)]
    assert [len(answer) for answer in answers] == [3, 2, 1]
    assert [row["mean_price"] for answer in answers for row in answer] == pytest.approx(expected["mean_price"][:6])


@pytest.mark.parametrize(("body", "reason"), [(b'[{"size": 80}]', "region"), (b"no JSON", "Expecting value")])
def test_what_does_not_fit_is_refused_with_the_reason(address, body, reason):
    with pytest.raises(HTTPError) as caught:
        SEND(address[0], body)
    assert caught.value.code == 400
    assert reason in json.loads(caught.value.read())["error"]
