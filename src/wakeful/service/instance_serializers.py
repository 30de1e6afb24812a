"""The JSON of instances and of signals that were sent, the same in every interface."""

from __future__ import annotations

from collections.abc import Sequence

from wakeful.model.codec import JsonObject
from wakeful.service.agents.instances import InstanceDetails
from wakeful.service.auth.access import Principal
from wakeful.service.serializers import INSTANCES, RUNS, serialize_job
from wakeful.store.instances import InstanceView, Received


def serialize_instance(view: InstanceView) -> JsonObject:
    """Return an instance as it is listed."""
    return INSTANCES.to_json(view.row, waiting=view.waiting, run_id=view.active_run)


def serialize_instance_details(principal: Principal, details: InstanceDetails) -> JsonObject:
    """Return an instance with its schedules, and its state if the principal may see it."""
    content = serialize_instance(details.view)
    content["schedules"] = [serialize_job(principal, job) for job in details.schedules]
    if details.has_state:
        content["state"] = details.state
        content["stateError"] = details.state_error
    return content


def serialize_received(received: Received) -> JsonObject:
    """Return the run of a signal that was sent; of a duplicate, the run of the first one."""
    return RUNS.to_json(received.run, duplicate=received.duplicate)


def serialize_sent(received: Sequence[Received], *, batch: bool) -> JsonObject:
    """Return the run of one signal, or the `runs` of a batch."""
    runs = [serialize_received(each) for each in received]
    return {"runs": [*runs]} if batch else runs[0]
