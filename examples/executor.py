"""An executor: it claims runs over HTTP, does them, and says how they ended. Needs nothing but Python.

    WAKEFUL_KEY=wk_… python examples/executor.py        WAKEFUL_URL says where the server is

Put your own work into `work`. Start as many executors as you like: no run is given to two of them, and the
runs of one that dies are given to another after 30 seconds.
"""

import contextlib
import json
import os
import socket
import threading
import urllib.error
import urllib.request

URL = os.environ.get("WAKEFUL_URL", "http://127.0.0.1:9253") + "/api/workspaces/default/runs"
ME = f"{socket.gethostname()}-{os.getpid()}"


def work(run):
    """What there is to do. What it returns is the run's output; what it raises is its error."""
    return f"did {run['payload']} for the tick of {run['scheduledAt']}"


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), method="POST")
    request.add_header("Authorization", f"Bearer {os.environ['WAKEFUL_KEY']}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def beat(run, done):
    """Say every ten seconds that we are at it, until it is done or somebody else's."""
    while not done.wait(10):
        try:
            post(f"/{run['id']}/heartbeat", {})
        except urllib.error.HTTPError:
            return
        except OSError:
            continue  # the server is away for a moment; the lease is 30 seconds long


def execute(run):
    done = threading.Event()
    threading.Thread(target=beat, args=(run, done), daemon=True).start()
    try:
        said = {"status": "succeeded", "output": work(run)}
    except Exception as error:
        said = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    finally:
        done.set()
    print(run["job"], said, flush=True)
    try:
        # With its attempt: should we have been given up on meanwhile, the answer of another counts.
        post(f"/{run['id']}/complete", {**said, "attempt": run["attempt"]})
    except urllib.error.HTTPError as error:
        print("not taken:", error.read().decode(), flush=True)


def main():
    while True:
        try:
            runs = post("/claim", {"worker": ME, "limit": 1, "waitMs": 20_000})["runs"]
        except OSError as error:
            print("no server:", error, flush=True)
            threading.Event().wait(1)
            continue
        for run in runs:
            execute(run)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
