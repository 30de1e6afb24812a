"""The public model and its parser."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest

from wakeful import Job, Run, Unavailable, model
from wakeful.document import Defaults, read_definition
from wakeful.job.job import Chain, JobRecord
from wakeful.job.policy import Backoff, Catchup, Overlap
from wakeful.model.codec import from_json
from wakeful.run.run import TriggerName
from wakeful.schedule.schedules import CronSchedule
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import serialize_job

#: Keys that say the same as another key, which the model has.
SAID_TWICE = {"nextAtMs", "scheduledAtMs"}


def record(**fields: object) -> JobRecord:
    document = {"name": "digest", "schedule": "0 7 * * *", "tz": "Europe/Berlin", **fields}
    definition = read_definition(document, now_ms=0, defaults=Defaults())
    return JobRecord("j1", "acme", "writer", definition, True, 0, 1_800_000_000_250, None, 1_000, 2_000)


@pytest.mark.parametrize(
    ("enum", "names"),
    [
        (model.OverlapPolicy, Overlap),
        (model.CatchupPolicy, Catchup),
        (model.Trigger, TriggerName),
    ],
)
def test_an_enumeration_has_the_names_that_are_accepted(enum: type, names: object) -> None:
    assert [each.value for each in enum] == list(get_args(names))  # type: ignore[attr-defined]


def test_a_job_is_parsed_into_python_values() -> None:
    job = from_json(
        Job,
        serialize_job(
            LOCAL, record(timeout="90s", backoff={"base": "1s", "max": "5s"}, after="extract"), 0, 2
        ),
    )
    assert job.agent == "writer"
    assert job.schedule == CronSchedule("0 7 * * *", "Europe/Berlin")
    assert job.next_at == datetime(2027, 1, 15, 8, 0, 0, 250_000, tzinfo=UTC)
    assert job.next_at.tzinfo is UTC
    assert job.timeout == timedelta(seconds=90)
    assert job.catchup_window == timedelta(days=1)
    assert job.backoff == Backoff(1000, 5000)
    assert (job.backoff.base, job.backoff.max) == (timedelta(seconds=1), timedelta(seconds=5))
    assert job.after == Chain("extract")
    assert isinstance(job.overlap_policy, model.OverlapPolicy)
    assert job.overlap_policy == "skip"
    assert len(job.next_ticks) == 2


def test_no_field_of_the_json_of_a_job_is_lost() -> None:
    workflow = {"workflow_id": "etl", "version": 3, "target": None}
    shape = serialize_job(LOCAL, record(**workflow), 0, 5)
    keys = {
        {"agent": "agentId"}.get(each.name, each.name).replace("_", "").lower()
        for each in dataclasses.fields(Job)
    }
    for key in shape.keys() - SAID_TWICE:
        assert {key.lower(), key.removesuffix("Ms").lower()} & keys, key


def test_a_secret_is_not_in_the_representation_of_a_job() -> None:
    assert "whsec_" not in repr(from_json(Job, {**serialize_job(LOCAL, record()), "secret": "whsec_x"}))


@pytest.mark.parametrize(
    "json",
    [None, [], {}, {**serialize_job(LOCAL, record()), "overlapPolicy": "later"}, {"timeoutMs": 10**30}],
    ids=["null", "a list", "an empty object", "an unknown policy", "a number beyond all times"],
)
def test_json_that_is_not_a_job_is_refused(json: object) -> None:
    with pytest.raises(Unavailable, match="cannot read"):
        from_json(Job, json)
    with pytest.raises(Unavailable, match="a Run that"):
        from_json(Run, json)


def test_the_model_is_frozen_and_documented() -> None:
    for name in model.__all__:
        kind = getattr(model, name)
        assert kind.__doc__, name
        if dataclasses.is_dataclass(kind):
            assert vars(kind)["__dataclass_params__"].frozen, name
            assert "__slots__" in vars(kind), name
    assert Run is model.Run
