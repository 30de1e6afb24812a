"""Arbitrary job documents are accepted or rejected with an error, and other jobs do not change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.conftest import NewApp
from tests.support.effort import cases
from wakeful import Wakeful
from wakeful.document.definition import NAMES
from wakeful.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import serialize_job

WHERE = (LOCAL, "default", "default")
GOOD = {"name": "good", "schedule": "0 0 29 2 *", "payload": {"kept": ["to the byte", 1.0, None]}}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(
        ["", "@daily", "every 5m", "* * * * *", "0 9 * * MON-FRI", "in 5m", "UTC", "Europe/Berlin", "skip",
         "queue", "none", "retry", "function", "\x00", "\ud800", "5s", "2030-01-01T00:00", "a" * 300]
    ),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.text(max_size=10),
                st.sampled_from(["kind", "expr", "tz", "everyMs", "atMs", "at", "url", "name", "job", "on"]),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
#: Almost all of these are rejected.
any_documents = st.dictionaries(
    st.one_of(st.sampled_from(sorted(NAMES)), st.text(max_size=12)), values, max_size=6
)
#: All of these are accepted.
valid_documents = st.fixed_dictionaries(
    {},
    optional={
        "schedule": st.sampled_from(["@daily", "every 5m", "0 9 * * MON-FRI"]),
        "description": st.text("ab \u00fc", max_size=30),
        "overlapPolicy": st.sampled_from(["skip", "queue", "allow"]),
        "maxAttempts": st.integers(1, 5),
        "timeout": st.sampled_from(["5s", "10m"]),
        "enabled": st.booleans(),
    },
)
documents = any_documents | valid_documents


class Session:
    """An app on its own loop, shared by all examples of a test."""

    def __init__(self, app: Wakeful, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.app = app
        self.run = run


@pytest.fixture
def session(new_app: NewApp) -> Iterator[Session]:
    with asyncio.Runner() as runner:

        async def begin() -> Wakeful:
            app = new_app()
            await app.__aenter__()
            await app.services.jobs.create(*WHERE, GOOD)
            return app

        app = runner.run(begin())
        yield Session(app, runner.run)
        runner.run(app.__aexit__(None, None, None))


async def _kept(app: Wakeful) -> dict[str, str]:
    """Return the serialized jobs by name."""
    listed = await app.services.jobs.list(LOCAL, "default")
    return {job.name: json.dumps(serialize_job(LOCAL, job), sort_keys=True) for job in listed}


async def _try(app: Wakeful, doing: Coroutine[Any, Any, Any], name: str) -> None:
    before = await _kept(app)
    try:
        saved = await doing
    except (InvalidArgument, AlreadyExists, FailedPrecondition):
        assert await _kept(app) == before, "what was refused changed nothing"
    else:
        after = await _kept(app)
        job = saved.job
        shape = json.dumps(serialize_job(LOCAL, job), sort_keys=True)
        assert json.loads(after[job.name]) == {
            **json.loads(shape),
            "revision": json.loads(after[job.name])["revision"],
        }
        assert {each: text for each, text in after.items() if each != job.name} == {
            each: text for each, text in before.items() if each not in (job.name, name)
        }, "and nobody else"


@settings(max_examples=cases(150, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(document=documents)
def test_an_arbitrary_document_is_created_or_rejected(session: Session, document: dict[str, Any]):
    whole = {"name": "fuzzed", "schedule": "0 0 29 2 *", **document}
    session.run(_try(session.app, session.app.services.jobs.upsert(*WHERE, whole), "fuzzed"))


@settings(max_examples=cases(150, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(patch=documents)
def test_an_arbitrary_patch_is_applied_or_rejected(session: Session, patch: dict[str, Any]):
    patch.pop("name", None)
    session.run(_try(session.app, session.app.services.jobs.update(*WHERE, "good", patch), "good"))


@settings(max_examples=cases(60, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(payload=values)
def test_an_arbitrary_payload_is_stored_unchanged_or_rejected(session: Session, payload: object):
    async def trigger() -> None:
        services = session.app.services
        try:
            run = await services.jobs.trigger(*WHERE, "good", payload=payload)
        except InvalidArgument:
            return
        assert run is not None
        (kept, *_) = await services.runs.list(LOCAL, "default", limit=1)
        assert (kept.payload is None) == (payload is None)
        if kept.payload is not None:
            assert json.loads(kept.payload) == json.loads(json.dumps(payload))
        await services.runs.cancel(LOCAL, "default", run.id)

    session.run(trigger())
