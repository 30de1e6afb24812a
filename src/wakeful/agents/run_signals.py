"""The signal of a run: the CloudEvent that was sent, or one that is made from the run of a job."""

from __future__ import annotations

from wakeful.launch.port import Launch
from wakeful.run.instances import JOB_SIGNAL
from wakeful.signal.signals import Signal
from wakeful.values.instants import utc_datetime


def signal_of_run(run: Launch) -> Signal:
    """Return the signal that a run carries to its handler.

    A run without a job has the CloudEvent as its payload. Of a job, the type is that of the run, else that of
    the target, and the data is the payload; the id is the idempotency key, so it is the same for every
    attempt and replay.
    """
    if run.job_id is None and run.payload_text is not None:
        return Signal.from_stored(run.payload_text)
    own = run.target.get("signal")
    return Signal.of_job(
        run.signal or (own if isinstance(own, str) and own else JOB_SIGNAL),
        run.payload,
        id=run.idempotency_key,
        source=f"/workspaces/{run.workspace}/agents/{run.agent}/jobs/{run.job or run.job_id or ''}",
        time=utc_datetime(run.scheduled_ms),
    )
