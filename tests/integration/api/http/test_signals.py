"""Signals over HTTP: the modes of CloudEvents, duplicates, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.conftest import NewApp, on_one_store
from tests.support.agent_classes import event, with_classes
from tests.support.api_client import ApiClient, Reply, served
from tests.support.waiting import over
from wakeful.signal.signals import MAX_DATA

SIGNALS = "/agents/report/signals"
STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


@pytest.fixture
async def agent(new_app: NewApp) -> AsyncIterator[ApiClient]:
    """Yield an admin's client of a server with agent classes."""
    app = with_classes(new_app())
    async with app, served(app) as client:
        yield client


async def paused(agent: ApiClient, instance: str = "default") -> None:
    """Pause a new instance, so that its signals wait."""
    await agent("POST", f"/agents/report/instances/{instance}/start")
    reply = await agent("POST", f"/agents/report/instances/{instance}/pause", {"note": "tests"})
    assert reply.status == 200, reply


async def waiting(agent: ApiClient, instance: str = "default") -> list[Any]:
    """Return the events that wait, oldest first."""
    reply = await agent("GET", "/agents/report/runs", instance=instance, state="pending")
    return [run["payload"] for run in reply.body["runs"]][::-1]


async def test_a_signal_is_a_run_that_the_agent_handles(agent: ApiClient):
    sent = await agent("POST", SIGNALS, event(data={"month": 3}), headers=STRUCTURED, instance="eu")

    assert sent.status == 202
    run = sent.body
    assert (run["instance"], run["signal"], run["trigger"]) == ("eu", "report.generate", "signal")
    assert run["duplicate"] is False
    assert run["requires"] == "agent:default/report"
    await over(agent.app, run["id"])
    run = (await agent("GET", f"/runs/{run['id']}")).body
    assert (run["state"], run["output"], run["error"]) == ("succeeded", "report 1", None)
    (emitted,) = run["emitted"]
    assert (emitted["type"], emitted["data"]) == ("report.ready", {"count": 1})
    instance = (await agent("GET", "/agents/report/instances/eu")).body
    assert instance["state"] == {"count": 1}


async def test_runs_are_filtered_by_instance(agent: ApiClient):
    sent = {}
    for instance in ("eu", "us"):
        await paused(agent, instance)
        sent[instance] = (await agent("POST", SIGNALS, event(), instance=instance)).body["id"]

    lists: list[tuple[str, dict[str, Any]]] = [("/agents/report/runs", {}), ("/runs", {"agent": "report"})]
    for path, query in lists:
        for instance, run in sent.items():
            found = (await agent("GET", path, **query, instance=instance)).body["runs"]
            assert [each["id"] for each in found] == [run]
            pending = (await agent("GET", path, **query, instance=instance, state="pending")).body["runs"]
            assert pending == found
        assert len((await agent("GET", path, **query)).body["runs"]) == 2


async def test_a_duplicate_is_answered_with_the_first_run(agent: ApiClient):
    await paused(agent)
    first = await agent("POST", SIGNALS, event("7"))
    again = await agent("POST", SIGNALS, event("7", data="another"))
    elsewhere = await agent("POST", SIGNALS, {**event("7"), "source": "/other"})

    assert again.status == elsewhere.status == 202
    assert (again.body["id"], again.body["duplicate"]) == (first.body["id"], True)
    assert (elsewhere.body["id"] != first.body["id"], elsewhere.body["duplicate"]) == (True, False)
    assert len(await waiting(agent)) == 2


@on_one_store
async def test_structured_mode_needs_no_special_content_type(agent: ApiClient):
    await paused(agent)
    plain = await agent("POST", SIGNALS, event("1"))
    curl = await agent(
        "POST",
        SIGNALS,
        data=json.dumps(event("2")),
        headers={"content-type": "application/x-www-form-urlencoded"},
    )

    assert (plain.status, curl.status) == (202, 202)
    assert [each["id"] for each in await waiting(agent)] == ["1", "2"]


@on_one_store
async def test_binary_mode_has_its_attributes_in_headers(agent: ApiClient):
    await paused(agent)
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "17",
        "ce-source": "/billing",
        "ce-type": "report.generate",
        "ce-subject": "M%C3%A4rz",
        "ce-traceid": "abc",
    }
    bodies: dict[str, tuple[bytes, dict[str, object]]] = {
        "application/json": (b'{"month": 3}', {"data": {"month": 3}}),
        "text/plain": (b"hello", {"data": "hello"}),
        "application/octet-stream": (b"\x00\xff", {"data_base64": "AP8="}),
    }
    for number, (kind, (body, _)) in enumerate(bodies.items()):
        own = {**headers, "ce-id": str(number), "content-type": kind}
        reply = await agent("POST", SIGNALS, data=body, headers=own)
        assert reply.status == 202, reply

    found = await waiting(agent)
    for number, (kind, (_, expected)) in enumerate(bodies.items()):
        stored = found[number]
        assert stored["id"] == str(number)
        assert (stored["source"], stored["subject"], stored["traceid"]) == ("/billing", "März", "abc")
        assert stored["datacontenttype"] == kind
        assert {name: stored.get(name) for name in expected} == expected


async def test_a_batch_is_stored_whole_and_in_its_order(agent: ApiClient):
    await paused(agent)
    sent = await agent("POST", SIGNALS, [event("a"), event("b"), event("a")], headers=BATCH)

    assert sent.status == 202
    assert [run["duplicate"] for run in sent.body["runs"]] == [False, False, True]
    assert sent.body["runs"][0]["id"] == sent.body["runs"][2]["id"]
    assert [each["id"] for each in await waiting(agent)] == ["a", "b"]

    invalid = await agent("POST", SIGNALS, [event("c"), event("d", type="")], headers=BATCH)
    assert (invalid.status, invalid.code) == (422, "invalid-argument")
    assert invalid.body["detail"].startswith("event 1 of the batch: type: ")
    assert len(await waiting(agent)) == 2


async def test_a_full_mailbox_refuses_more(agent: ApiClient):
    await paused(agent)
    fills = await agent("POST", SIGNALS, [event(str(each)) for each in range(5)], headers=BATCH)
    assert fills.status == 202

    full = await agent("POST", SIGNALS, event("6"))
    assert (full.status, full.code) == (429, "resource-exhausted")
    assert "mailbox" in full.body["detail"]
    again = await agent("POST", SIGNALS, event("0"))
    assert (again.status, again.body["duplicate"]) == (202, True)
    assert (await agent("POST", SIGNALS, event("6"), instance="other")).status == 202


async def test_a_stopped_instance_and_an_agent_without_a_class_accept_no_signal(agent: ApiClient):
    await agent("POST", "/agents/report/instances/eu/start")
    await agent("POST", "/agents/report/instances/eu/stop")

    stopped = await agent("POST", SIGNALS, event(), instance="eu")
    assert (stopped.status, stopped.code) == (409, "failed-precondition")
    assert "start it" in stopped.body["detail"]
    no_class = await agent("POST", "/agents/default/signals", event())
    assert (no_class.status, no_class.code) == (409, "failed-precondition")
    assert "app.agent" in no_class.body["detail"]
    unknown = await agent("POST", "/agents/nobody/signals", event())
    assert (unknown.status, unknown.code) == (404, "not-found")
    await agent("POST", "/agents/report/instances/eu/start")
    assert (await agent("POST", SIGNALS, event(), instance="eu")).status == 202


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in event().items() if key != name}


INVALID: list[tuple[object, str]] = [
    *((without(name), f"{name}: it is missing") for name in ("specversion", "id", "source", "type")),
    (event() | {"specversion": "0.3"}, "specversion: "),
    (event() | {"id": ""}, "id: it is empty"),
    (event() | {"id": 7}, "id: "),
    (event() | {"source": "a b"}, "source: "),
    (event() | {"type": "report.*"}, "type: "),
    (event() | {"type": "x" * 256}, "type: "),
    (event() | {"time": "yesterday"}, "time: "),
    (event() | {"datacontenttype": "json"}, "datacontenttype: "),
    (event() | {"data_base64": "!"}, "data_base64: "),
    (event() | {"data": 1, "data_base64": "AA=="}, "data: "),
    (event() | {"nested": {"a": 1}}, "nested: "),
    (event() | {"Upper": "a"}, "Upper"),
    (event() | {"data": "x" * MAX_DATA}, "data: "),
    (event() | {"data": "\ud800"}, "data: "),
    ("text", "CloudEvent"),
    (17, "CloudEvent"),
    ([], "at least one"),
    ([17], "event 0 of the batch"),
]


@on_one_store
async def test_an_invalid_event_is_refused_and_names_the_attribute(agent: ApiClient):
    for body, named in INVALID:
        reply = await agent("POST", SIGNALS, body)
        assert (reply.status, reply.code) == (422, "invalid-argument"), body
        assert named in reply.body["detail"], reply
    assert (await agent("GET", "/agents/report/instances")).body["instances"] == []


@on_one_store
async def test_a_request_that_cannot_be_read_is_malformed(agent: ApiClient):
    async def refused(body: bytes, **headers: str) -> Reply:
        return await agent("POST", SIGNALS, data=body, headers=headers or STRUCTURED)

    for body in (b"", b"{", b"\xff", b'{"a": NaN}', b"[" * 100_000):
        reply = await refused(body)
        assert (reply.status, reply.code) == (400, "invalid-argument"), body[:9]
    binary = {f"ce-{name}": str(value) for name, value in event().items()}
    reply = await refused(b"{", **binary, **{"content-type": "application/json"})
    assert reply.status == 400
    reply = await refused(b"<a/>", **{"content-type": "application/xml"})
    assert (reply.status, "application/cloudevents+json" in reply.body["detail"]) == (422, True)
    reply = await refused(b"x", **binary, **{"ce-data": "1"})
    assert (reply.status, "ce-data" in reply.body["detail"]) == (422, True)
    assert (await refused(b" " * 300_000)).status == 413
    assert (await agent("POST", SIGNALS, event(), instance="a\nb")).status == 422
    unknown = await agent("POST", SIGNALS, event(), to="eu")
    assert (unknown.status, unknown.body["detail"][:3]) == (422, "to:")


async def test_a_request_with_an_idempotency_key_is_performed_once(agent: ApiClient):
    await paused(agent)
    key = {"Idempotency-Key": "one"}
    first = await agent("POST", SIGNALS, event("1"), headers=key)
    again = await agent("POST", SIGNALS, event("1"), headers=key)
    other = await agent("POST", SIGNALS, event("2"), headers=key)

    assert (first.status, again.status, again.body) == (202, 202, first.body)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.body["duplicate"] is False  # the stored response, not a second signal
    assert other.status == 422
    assert len(await waiting(agent)) == 1


async def test_signals_of_an_inactive_agent_are_refused(agent: ApiClient):
    target = (await agent("GET", "/agents/report")).body["target"]
    assert target == {"kind": "agent"}
    await agent("PUT", "/agents/report", {"active": False, "target": target})

    reply = await agent("POST", SIGNALS, event())
    assert (reply.status, reply.code) == (409, "failed-precondition")
    assert "not active" in reply.body["detail"]
