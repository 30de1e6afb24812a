"""An executor: it claims runs over HTTP, executes them and reports their outcome. It needs only Python.

    eval "$(wakeful keys env)"             sets WAKEFUL_URL and WAKEFUL_KEY for this machine's server
    python examples/executor.py

Put your own code into `work`. Start any number of executors: no run is given to two of them. A run whose
executor sends no heartbeat for 30 seconds is given to another, as a new attempt.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import urllib.error
import urllib.request

URL = os.environ.get("WAKEFUL_URL", "http://127.0.0.1:9253") + "/api/workspaces/default/runs"
KEY = os.environ.get("WAKEFUL_KEY")
ME = f"{socket.gethostname()}-{os.getpid()}"


def work(run):
    """Do the work. The return value is the run's output, an exception its error."""
    return f"did {run['payload']} for the tick of {run['scheduledAt']}"


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), method="POST")
    request.add_header("Authorization", f"Bearer {KEY}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def heartbeat(run, done):
    """Renew the lease every ten seconds, until the work is done or the lease is lost."""
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
    threading.Thread(target=heartbeat, args=(run, done), daemon=True).start()
    try:
        result = {"status": "succeeded", "output": work(run)}
    except Exception as error:
        result = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    finally:
        done.set()
    print(run["job"], result, flush=True)
    try:
        # With the attempt: if the lease was lost, another executor has the run and this is refused.
        post(f"/{run['id']}/complete", {**result, "attempt": run["attempt"]})
    except urllib.error.HTTPError as error:
        print("refused:", error.read().decode(), flush=True)


def main():
    if not KEY:
        sys.exit('executor: WAKEFUL_KEY is not set; run `eval "$(wakeful keys env)"` and start this again')
    while True:
        try:
            runs = post("/claim", {"worker": ME, "limit": 1, "waitMs": 20_000})["runs"]
        except urllib.error.HTTPError as error:
            if error.code < 500:  # the same request fails again: the key or the URL is wrong
                sys.exit(f"executor: {URL}/claim responded {error.code}: {error.read().decode()}")
            print("no runs:", error, flush=True)
            threading.Event().wait(1)
            continue
        except OSError as error:
            print("no server:", error, flush=True)
            threading.Event().wait(1)
            continue
        for run in runs:
            execute(run)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
