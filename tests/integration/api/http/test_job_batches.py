"""Many jobs in one request: all of them or none, and an error has the errors of all documents."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import JOBS, ApiClient, Reply
from tests.support.interruptions import cancel_at_each_await
from wakeful import AsyncClient
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.job_batches import MAX_BATCH

BULK = f"{JOBS}/bulk"


def _documents(*names: str, **fields: object) -> list[dict[str, Any]]:
    return [{"name": name, "schedule": SELDOM, "target": {"kind": "pull"}, **fields} for name in names]


async def _create(ask: ApiClient, documents: object, key: str | None = None, **query: str) -> Reply:
    headers = None if key is None else {"Idempotency-Key": key}
    return await ask("POST", BULK, {"jobs": documents}, headers=headers, **query)


async def _names(ask: ApiClient) -> list[str]:
    return [job.name for job in await ask.app.jobs.list()]


def _errors(reply: Reply) -> list[tuple[int, str | None, str]]:
    return [(each["index"], each["field"], each["code"]) for each in reply.body["errors"]]


async def test_an_error_has_the_errors_of_all_documents(ask: ApiClient):
    await ask.app.jobs.create("taken", schedule=SELDOM)
    documents: list[Any] = _documents("a", "taken", "a", "loop", "pool")
    documents[3] = {"name": "loop", "after": {"job": "pool"}}
    documents[4] = {"name": "pool", "after": {"job": "loop"}}
    documents += [{"name": "Not A Slug", "schedule": "never", "wrong": 1}, "no object"]
    documents += _documents("b", agentId="another") + _documents("c", excludeDates="nowhere")
    reply = await _create(ask, documents)
    assert (reply.status, reply.code) == (409, "already-exists")
    found = _errors(reply)
    assert found == sorted(found, key=lambda each: each[0])
    assert {each for each in found if each[0] < 5} == {
        (1, "name", "already-exists"),
        (2, "name", "already-exists"),
        (3, "after", "invalid-argument"),
        (4, "after", "invalid-argument"),
    }
    assert {(5, "name"), (5, "schedule"), (6, None), (7, "agentId")} <= {each[:2] for each in found}
    assert 8 in {each[0] for each in found}
    assert reply.body["detail"].startswith("jobs[1]: name: agent 'default' already has a job 'taken'\n")
    assert await _names(ask) == ["taken"]


async def test_one_invalid_document_at_the_end_creates_nothing(ask: ApiClient):
    documents = _documents(*(f"job-{number}" for number in range(300)))
    reply = await _create(ask, [*documents, {"name": "last", "schedule": "60 * * * *"}])
    assert (reply.status, _errors(reply)) == (422, [(300, "schedule", "invalid-argument")])
    assert reply.body["detail"].startswith("jobs[300]: schedule: ")
    assert (await _create(ask, documents)).status == 201
    many = await _create(ask, documents)
    assert (many.status, len(many.body["errors"])) == (409, 300)
    assert many.body["detail"].endswith("\nand 280 more errors")


async def test_jobs_may_come_after_each_other_and_are_audited_together(ask: ApiClient):
    documents = [*_documents("second", schedule=None, after={"job": "first"}), *_documents("first")]
    reply = await _create(ask, documents, brief="true")
    assert [job["name"] for job in reply.body["jobs"]] == ["second", "first"]
    assert not any("warnings" in job for job in reply.body["jobs"])  # 'first' exists
    assert reply.body["jobs"][0].keys() == {"id", "agentId", "name"}
    entries = (await ask("GET", "/audit", action="job.create-many")).body["entries"]
    assert [each["details"] for each in entries] == [{"count": 2, "jobs": ["second", "first"]}]
    alone = await _create(ask, [{"name": "third", "after": {"job": "nothing"}}], brief="true")
    assert "which does not exist" in alone.body["jobs"][0]["warnings"][0]


@on_one_store
async def test_the_response_has_the_jobs_as_they_are_read(ask: ApiClient):
    documents = _documents("a", "b", "c", "d", "e", payload={"to": "me"}, labels={"team": "ops"})
    documents[1] |= {"payload": None, "jitter": "1h", "schedule": "@daily"}
    documents[2] |= {"schedule": None, "after": {"job": "a"}, "payload": [1]}
    documents[3] |= {"target": {"kind": "webhook", "url": "https://example.com"}, "enabled": False}
    for caller in (ask, await ask.new("agent", agent="default")):
        created = (await _create(caller, documents)).body["jobs"]
        for job in created:
            job.pop("secret", None)
            read = (await caller("GET", f"{JOBS}/{job['name']}")).body
            job.pop("warnings", None)
            assert {key: read.get(key) for key in job} == job
            await ask("DELETE", f"{JOBS}/{job['name']}")


@on_one_store
async def test_a_dry_run_makes_the_same_checks_and_creates_nothing(ask: ApiClient):
    assert (await _create(ask, _documents("a", "b"), dry_run="true")).status == 204
    assert (await _create(ask, _documents("a", "b"), key="k", dry_run="true")).status == 204
    assert _errors(await _create(ask, _documents("a", "a"), dry_run="true")) == [
        (1, "name", "already-exists")
    ]
    cycle = [{"name": name, "after": {"job": after}} for name, after in ("ab", "bc", "ca")]
    assert len(_errors(await _create(ask, cycle, dry_run="true"))) == 3
    assert await _names(ask) == []


async def test_overlapping_requests_at_once_create_one_of_them_whole(ask: ApiClient):
    sets = [[f"job-{number}" for number in range(start, start + 60)] for start in (0, 30, 59, 118)]
    replies = await asyncio.gather(*(_create(ask, _documents(*names)) for names in sets))
    created = {
        name for names, reply in zip(sets, replies, strict=True) if reply.status == 201 for name in names
    }
    assert {reply.status for reply in replies} <= {201, 409}
    assert created
    assert set(await _names(ask)) == created
    for names, reply in zip(sets, replies, strict=True):
        if reply.status == 409:
            refused = {names[index] for index, _, _ in _errors(reply)}
            assert refused
            assert refused <= created


async def test_requests_with_the_same_names_in_another_order_wait_for_each_other(ask: ApiClient):
    names = [f"job-{number}" for number in range(1_200)]
    first, second = _documents(*names), _documents(*reversed(names))
    replies = await asyncio.gather(_create(ask, first), _create(ask, second))
    assert sorted(reply.status for reply in replies) == [201, 409]


async def test_two_requests_at_once_make_no_cycle_together(ask: ApiClient):
    one, two = [{"name": "a", "after": {"job": "b"}}], [{"name": "b", "after": {"job": "a"}}]
    replies = await asyncio.gather(_create(ask, one), _create(ask, two))
    assert sorted(reply.status for reply in replies) == [201, 422]
    (refused,) = (reply for reply in replies if reply.status == 422)
    assert _errors(refused) == [(0, "after", "invalid-argument")]


async def test_a_quota_that_ends_in_the_middle_creates_nothing(ask: ApiClient):
    limit = {"bucket": "scheduler.createJob", "limit": 5}
    assert (await ask("PUT", "/quotas", limit)).status in (200, 204), "the limit is not set"
    assert (await _create(ask, _documents("a", "b", "c"))).status == 201
    reply = await _create(ask, _documents("d", "e", "f"))
    assert (reply.status, reply.code) == (429, "resource-exhausted")
    assert await _names(ask) == ["a", "b", "c"]
    assert (await _create(ask, _documents("d", "e"))).status == 201


@pytest.mark.parametrize("brief", ["false", "true"])
async def test_a_key_that_is_used_twice_creates_once(ask: ApiClient, brief: str):
    documents = _documents(*(f"job-{number}" for number in range(120)))
    documents[7]["target"] = {"kind": "webhook", "url": "https://example.com"}
    replies = await asyncio.gather(*(_create(ask, documents, "k", brief=brief) for _ in range(3)))
    assert {reply.status for reply in replies} == {201}
    first, *others = (reply.body for reply in replies)
    assert all(other == first for other in others)
    assert first["jobs"][7]["secret"].startswith("whsec_")
    assert sorted(reply.headers.get("Idempotency-Replayed", "") for reply in replies) == ["", "true", "true"]
    assert len(await _names(ask)) == 120
    other = await _create(ask, _documents("other"), "k", brief=brief)
    assert other.status == 422
    assert "another request" in other.body["detail"]
    assert "errors" not in other.body


async def test_a_cancelled_request_creates_all_or_none(ask: ApiClient):
    number = 0

    async def create() -> object:
        documents = _documents(*(f"job-{number}-{each}" for each in range(120)))
        return await ask.app.services.jobs.create_many(LOCAL, "default", "default", documents)

    async def check() -> None:
        nonlocal number
        own = [name for name in await _names(ask) if name.startswith(f"job-{number}-")]
        assert len(own) in (0, 120)
        number += 1

    assert await cancel_at_each_await(create, check) >= 3


async def test_the_key_of_an_agent_creates_only_its_own_jobs(ask: ApiClient):
    ada = await ask.new("agent", agent="ada")
    path = JOBS.replace("/default/jobs", "/ada/jobs/bulk")
    assert (await ada("POST", path, {"jobs": _documents("a")})).status == 201
    assert (await _create(ada, _documents("b"))).status in (403, 404)
    there = await ask.new("agent", "default", agent="bob")
    assert (await there("POST", path, {"jobs": _documents("c")})).status in (403, 404)
    await ask("PUT", "/api/workspaces/acme", {})
    stranger = await ask.new("admin", "acme")
    assert (await _create(stranger, _documents("d"))).status == 404
    internal = await ada("POST", path, {"jobs": [*_documents("ok"), *_documents("heartbeat")]})
    assert internal.status in (403, 422)
    assert internal.body["errors"][0]["index"] == 1
    assert await _names(ask) == []


async def test_ten_thousand_jobs_are_created_and_one_more_is_refused(ask: ApiClient):
    documents = _documents(*(f"job-{number:05}" for number in range(MAX_BATCH)))
    reply = await _create(ask, [*documents, *_documents("more")])
    assert (reply.status, reply.body["detail"]) == (422, "jobs: write a list of 1 to 10000 jobs")
    created = await _create(ask, documents, brief="true")
    assert created.status == 201
    assert [job["name"] for job in created.body["jobs"]] == [each["name"] for each in documents]
    (entry,) = (await ask("GET", "/audit", action="job.create-many")).body["entries"]
    assert entry["details"]["jobs"] == [each["name"] for each in documents]


@on_one_store
async def test_a_chain_of_many_jobs_is_checked_in_little_time(ask: ApiClient):
    chain = [{"name": f"c{number}", "after": {"job": f"c{number - 1}"}} for number in range(1, 3_000)]
    reply = await _create(ask, [*_documents("c0"), *chain])
    assert reply.status == 422
    assert len(reply.body["errors"]) == 2_999 - 99
    wide = [{"name": f"w{number}", "after": {"job": f"u{number}"}} for number in range(2_000)]
    assert (await _create(ask, wide, brief="true")).status == 201
    many = [{"name": f"m{number}", "after": {"job": "one"}} for number in range(1_001)]
    assert (await _create(ask, many)).status == 429


@on_one_store
async def test_a_body_may_be_large_but_not_unlimited(ask: ApiClient):
    large = json.dumps({"jobs": _documents(*(f"job-{number}" for number in range(40)), payload="x" * 15_000)})
    assert len(large) > 256 * 1024
    assert (await ask("POST", BULK, data=large.encode(), brief="true")).status == 201
    client = AsyncClient(ask.url, ask.key)
    async with client:  # it sends without a warning what the server takes
        many = _documents(*(f"more-{number}" for number in range(100)), payload="x" * 15_000)
        assert len(await client.jobs.create_many(many)) == 100
    space = b" " * (8 * 1024 * 1024)
    declared = await ask("POST", BULK, data=io.BytesIO(space + b"{}"))
    assert (declared.status, declared.body["detail"]) == (
        413,
        "the body has more than 8388608 bytes; send fewer jobs at once",
    )

    async def parts() -> Any:
        for _ in range(9 * 16):
            yield b" " * 65_536

    assert (await ask("POST", BULK, data=parts())).status == 413
    assert (await ask("POST", JOBS, data=b" " * (256 * 1024 + 1))).status == 413


@on_one_store
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (
            ' {\n"jobs" : [ {"name": "a", "schedule": "@daily"} , {"name": "b", "schedule": "@daily"}\t]\r} ',
            201,
        ),
        (
            '{"jobs": [{"name": "a", "schedule": "@daily"}], "jobs": [{"name": "b", "schedule": "@daily"}]}',
            201,
        ),
        ('{"jobs": [{"name": "a", "schedule": "@daily", "payload": "\\ufffd \\u00e9"}]}', 201),
        ('{"jobs": [{"name": "a", "schedule": "@daily", "payload": "\\ud800"}]}', 400),
        ('{"jobs": [{"name": "a", "schedule": "@daily", "payload": NaN}]}', 400),
        ('{"jobs": [{"name": "a", "schedule": "@daily"},]}', 400),
        ('{"jobs": [{"name": "a", "schedule": "@daily"}', 400),
        ('{"jobs": [{"name": "a", "schedule": "@daily"}]} x', 400),
        ('{"jobs": [' + "[" * 200 + "]" * 200 + "]}", 422),
        ('{"jobs": [' + "[" * 100_000, 400),
        ('{"jobs": [{"name": "a", "schedule": "@daily"}], "more": 1}', 422),
        ('{"jobs": []}', 422),
        ('{"jobs": {}}', 422),
        ("[]", 422),
    ],
)
async def test_a_body_is_read_as_any_other(ask: ApiClient, body: str, status: int):
    reply = await ask("POST", BULK, data=body.encode())
    assert reply.status == status, reply
    assert bool(await _names(ask)) == (status == 201)
