"""An executor: it claims runs over HTTP, executes them, and reports how they ended. Needs nothing but Python.

    WAKEFUL_KEY=wk_… python examples/executor.py        WAKEFUL_URL says where the server is

Put your own work into `work`. Start as many executors as you like: no run is given to two of them. A run
whose executor sends no heartbeat for 30 seconds is given to another, as a new attempt.
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
    """Renew the lease every ten seconds, until the work is done or the run is no longer ours."""
    while not done.wait(10):
        try:
            post(f"/{run['id']}/heartbeat", {"attempt": run["attempt"]})
        except urllib.error.HTTPError as error:
            if error.code == 409:
                return
        except OSError:
            continue  # the server cannot be reached; the lease is 30 seconds long


def execute(run):
    done = threading.Event()
    threading.Thread(target=beat, args=(run, done), daemon=True).start()
    try:
        result = {"status": "succeeded", "output": work(run)}
    except Exception as error:
        result = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    finally:
        done.set()
    print(run["job"], result, flush=True)
    try:
        # With its attempt: if the lease was lost meanwhile, the run belongs to another executor.
        post(f"/{run['id']}/complete", {**result, "attempt": run["attempt"]})
    except urllib.error.HTTPError as error:
        print("refused:", error.read().decode(), flush=True)


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
