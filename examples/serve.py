"""A service: rows of a table as JSON in, predictions as JSON out, with the standard library alone.

python examples/serve.py runs/prices 8000
curl localhost:8000 --data '[{"size": 80, "age": 12, "region": "north"}]'

An ensemble may be called by several threads at once; with FastAPI or Flask `answer` is the function of the route.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd

import murmuration as mm


def answer(ensemble: mm.Ensemble, body: bytes) -> tuple[int, bytes]:
    """Return the status and the JSON of predictions; rows that do not fit are refused with the reason."""
    try:
        predictions = ensemble.predict(pd.DataFrame(json.loads(body))).to_pandas()
    except (ValueError, mm.Misuse) as error:
        return 400, json.dumps({"error": str(error)}).encode()
    return 200, predictions.to_json(orient="records").encode()


def server(path: str, port: int) -> ThreadingHTTPServer:
    """Return a server of the run at `path`."""
    ensemble = mm.load(path)

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, text = answer(ensemble, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: object) -> None:
            """Print nothing for each request."""

    return ThreadingHTTPServer(("localhost", port), Service)


if __name__ == "__main__":
    server(sys.argv[1], int(sys.argv[2])).serve_forever()
