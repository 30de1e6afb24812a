"""An executor: it claims runs over HTTP, executes them and reports their outcome.

    eval "$(wakeful keys env)"             sets WAKEFUL_URL and WAKEFUL_KEY for this machine's server
    python examples/executor.py

Put your own code into `work`. Start any number of executors: no run is given to two of them. A run whose
executor sends no heartbeat for 30 seconds is given to another, as a new attempt.
"""

import os
import sys

from wakeful import Unauthenticated
from wakeful.remote import Worker

worker = Worker(os.environ.get("WAKEFUL_URL"), os.environ.get("WAKEFUL_KEY"))


@worker.handler  # or, for the runs of one job: @worker.function("summarise")
def work(run):
    """Do the work. The return value is the run's output, an exception its error."""
    output = f"did {run.payload} for the tick of {run.scheduled_at:%Y-%m-%dT%H:%M:%SZ}"
    print(run.job, output, flush=True)
    return output


if __name__ == "__main__":
    try:
        worker.run()
    except Unauthenticated as error:
        sys.exit(f"executor: {error}")
