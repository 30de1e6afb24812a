"""The response to a create, a wake, a run and a replay shows the row as it is stored."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.waiting import over
from wakeful.values.clock import Clock

#: Fields that only the response to a create has.
_ONCE = {"secret", "warnings"}


class _Ticking:
    """A clock that advances with each reading: no two readings are equal."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._readings = 0

    def now_ms(self) -> int:
        self._readings += 1
        return self._clock.now_ms() + self._readings


@pytest.fixture
def ticking(ask: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask.app.store, "clock", _Ticking(ask.app.store.clock))


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "1"}])
async def test_a_created_job_is_shown_as_it_is_stored(
    ask: ApiClient, ticking: None, headers: dict[str, str]
) -> None:
    webhook = {"kind": "webhook", "url": "http://127.0.0.1:9/"}
    documents: dict[str, dict[str, object]] = {
        "a": {"schedule": "0 9 * * *", "tz": "Europe/Berlin", "target": webhook, "payload": {"ü": 1.5}},
        "b": {"schedule": "every 15m", "message": "hi", "jitterMs": 500, "labels": {"b": "1", "a": "2"}},
        "c": {"schedule": "in 20m", "enabled": False},
    }
    for name, fields in documents.items():
        key = {each: value + name for each, value in headers.items()}
        created = await ask("POST", JOBS, {"name": name, **fields}, headers=key)
        assert created.status == 201
        stored = (await ask("GET", f"{JOBS}/{name}")).body
        shown = {field: value for field, value in created.body.items() if field not in _ONCE}
        assert {field: stored.get(field) for field in shown} == shown


async def test_a_new_run_is_shown_as_it_is_stored(ask: ApiClient, ticking: None) -> None:
    await ask("POST", JOBS, {"name": "a", "schedule": SELDOM, "message": "hi"})
    target = {"kind": "function", "name": "failing"}
    await ask("POST", JOBS, {"name": "failing", "schedule": SELDOM, "target": target})
    dead = (await ask("POST", f"{JOBS}/failing/run")).body["id"]
    await over(ask.app, dead)
    await ask("PATCH", f"{JOBS}/failing", {"target": {"kind": "pull"}})  # its replay waits to be claimed
    for path, body in (
        (f"{HOME}/agents/default/runs", {"payload": {"x": 1}}),
        (f"{JOBS}/a/run", {"payload": {"y": 2}}),
        (f"{HOME}/runs/{dead}/replay", None),
    ):
        made = await ask("POST", path, body)
        assert made.status == 201, made
        stored = (await ask("GET", f"/runs/{made.body['id']}")).body
        assert {field: stored.get(field) for field in made.body} == made.body
