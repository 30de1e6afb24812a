"""The server enforces the bounds in the OpenAPI document, tested on both sides of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.integration.api.http.test_conformance import operations
from tests.integration.conftest import SELDOM, on_one_store
from tests.support.api_client import HOME, JOBS, ApiClient
from tests.support.openapi import openapi_document
from wakeful.api.http.schemas import SCHEMAS
from wakeful.api.http.schemas.parts import SLUG

_RUN = f"{HOME}/runs/01980000-0000-7000-8000-000000000000"
_WORKFLOW = {"workflowId": "w", "version": 1}
#: Fields with validation beyond their bounds, such as instants and addresses.
_JUDGED = {"schedule", "cron", "startAt", "endAt", "expiresAt", "webhookUrl", "after", "on"}

#: Parameters that are one of a few words, which the service checks.
_WORDS = {"state", "creator", "schedule", "sort", "internal"}


class Body(NamedTuple):
    """A request with the schema of its body; not found and conflict count as success."""

    schema: str
    method: str
    path: str
    base: dict[str, Any]


BODIES = [
    Body("NamedJobDocument", "PUT", f"{JOBS}/a?dry_run=true", {"schedule": SELDOM}),
    Body("JobPatch", "PATCH", f"{JOBS}/there", {}),
    Body("AgentDocument", "PUT", f"{HOME}/agents/writer", {}),
    Body("AgentPatch", "PATCH", f"{HOME}/agents/default", {}),
    Body("WorkspaceDocument", "PUT", HOME, {}),
    Body("Claim", "POST", f"{HOME}/runs/claim", {"worker": "w"}),
    Body("Completion", "POST", f"{_RUN}/complete", {"status": "failed"}),
    Body("QuotaDocument", "PUT", f"{HOME}/quotas", {"bucket": "scheduler.createJob", "limit": 1}),
    Body("KeyDocument", "POST", f"{HOME}/keys", {"role": "member"}),
]


def _bounds(schema: dict[str, Any]) -> Iterator[tuple[object, object]]:
    """Yield pairs of values just within and just outside each bound of a schema."""
    if "minimum" in schema:
        yield schema["minimum"], schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"], schema["maximum"] + 1
    if "exclusiveMinimum" in schema:
        yield schema["exclusiveMinimum"] + 0.5, schema["exclusiveMinimum"]
    if schema.get("minLength"):
        yield "x" * schema["minLength"], "x" * (schema["minLength"] - 1)
    if "maxLength" in schema:
        yield "x" * schema["maxLength"], "x" * (schema["maxLength"] + 1)
    if "maxItems" in schema:
        most, places = schema["maxItems"], "properties" in schema.get("items", {})
        items = [{"channel": f"c{n}"} if places else "2030-01-01" for n in range(most + 1)]
        yield items[:most], items
    if "maxProperties" in schema:
        most = schema["maxProperties"]
        yield {f"k{n}": "v" for n in range(most)}, {f"k{n}": "v" for n in range(most + 1)}
    if "propertyNames" in schema:
        longest = schema["propertyNames"]["maxLength"]
        yield {"k" * longest: "v"}, {"k" * (longest + 1): "v"}
        yield {"k": "v"}, {"": "v"}
    if isinstance(schema.get("additionalProperties"), dict):
        longest = schema["additionalProperties"]["maxLength"]
        yield {"k": "v" * longest}, {"k": "v" * (longest + 1)}
    for name, inner in schema.get("properties", {}).items():
        base = {"url": "https://a.example"} if "cooldownMs" in schema["properties"] else {}
        if name in ("channel", "to", "url", "secret", "message"):
            continue  # validated together, or by more than their length
        for within, outside in _bounds(inner):
            yield {**base, name: within}, {**base, name: outside}
    for inner in schema.get("anyOf", ()):
        yield from _bounds(inner)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.schema)
@on_one_store
async def test_a_body_value_at_a_bound_is_accepted_and_one_beyond_is_rejected(ask: ApiClient, body: Body):
    await ask("PUT", f"{JOBS}/there", {"schedule": SELDOM})
    checked = 0
    for name, schema in SCHEMAS[body.schema]["properties"].items():
        if name in _JUDGED or schema.get("pattern") == SLUG["pattern"]:
            continue
        base = {**body.base, **(_WORKFLOW if name in ("workflowId", "version", "userId") else {})}
        for within, outside in _bounds(schema):
            if name == "waitMs" and within:
                continue  # a claim would wait that long
            good = await ask(body.method, body.path, {**base, name: within})
            assert good.status < 300 or good.status in (404, 409), (name, str(within)[:80], good.body)
            bad = await ask(body.method, body.path, {**base, name: outside})
            assert (bad.status, bad.code) == (422, "invalid-argument"), (name, str(outside)[:80])
            checked += 1
    assert checked


@on_one_store
async def test_a_query_parameter_at_a_bound_is_accepted_and_one_beyond_is_rejected(ask: ApiClient):
    await ask("PUT", f"{JOBS}/digest", {"schedule": SELDOM})
    await ask("POST", "/agents/default/messages", {"message": "hello", "session": "main"})
    known = {"workspace": "default", "agent": "default", "name": "digest", "session": "main"}
    checked = 0
    for operation in operations():
        if operation.method != "GET" or operation.about["operationId"] == "streamEvents":
            continue
        for parameter in operation.about.get("parameters", ()):
            if parameter["in"] != "query" or parameter["name"] in {"cursor", *_WORDS}:
                continue
            for within, outside in _bounds(parameter["schema"]):
                path = operation.path.format(**known)
                name = parameter["name"]
                assert (await ask("GET", f"{path}?{name}={within}")).status == 200, (path, name, within)
                assert (await ask("GET", f"{path}?{name}={outside}")).status == 422, (path, name, outside)
                checked += 1
    assert checked > 10


def test_the_job_document_schema_has_the_bounds_of_its_parser():
    taken = openapi_document()["components"]["schemas"]["JobDocument"]["properties"]
    assert (taken["misfireGraceMs"]["minimum"], taken["jitterMs"]["maximum"]) == (1_000, 86_400_000)
    assert taken["labels"]["maxProperties"] == 32
