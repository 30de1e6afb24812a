"""Workflows: the DAG is read from the store and passed to its target with metadata."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.integration.launch.test_webhooks import verifies
from tests.support.receiver import Receiver, launching
from tests.support.waiting import eventually, over
from tests.unit.launch.launches import launch
from wakeful import InvalidArgument, Launch, Wakeful
from wakeful.errors import Unavailable
from wakeful.launch.function import FunctionLauncher
from wakeful.launch.workflow import WorkflowLauncher
from wakeful.run.outcome import Failed, Succeeded
from wakeful.service.auth.access import LOCAL
from wakeful.store.rows import WorkflowRow
from wakeful.values.json_value import Json

DAG = {"nodes": [{"id": "fetch"}, {"id": "Zoë"}], "edges": []}
INVOICES: dict[str, Json] = {"workflowId": "invoices", "version": 3, "userId": "ada"}
QUICKLY = {"base": "20ms", "max": "20ms"}


async def deployed(app: Wakeful) -> None:
    await app.services.admin.workflows.put(LOCAL, "default", "invoices", 3, DAG)


def executing(app: Wakeful) -> list[Launch]:
    """Register a function that executes DAGs; return the list of its launches."""
    given: list[Launch] = []

    @app.function("execute")
    async def execute(run: Launch) -> str:
        given.append(run)
        return "done"

    return given


def to_function(**fields: Any) -> dict[str, Any]:
    target = {"kind": "workflow", **INVOICES, "to": {"kind": "function", "name": "execute"}}
    return {"schedule": SELDOM, "target": target, "backoff": QUICKLY, **fields}


async def test_a_function_gets_the_dag_and_its_metadata(new_app: NewApp):
    app = new_app()
    given = executing(app)
    async with app:
        await deployed(app)
        await app.jobs.create("bill", **to_function(payload={"month": 5}))
        run = await over(app, (await app.jobs.run("bill")).id)
        assert (run.state, run.output) == ("succeeded", "done")
        (launched,) = given
        assert launched.payload == {
            "dag": DAG,
            "meta": {
                "source": "user",
                "user_id": "ada",
                "scheduled_for": launched.scheduled_at.isoformat(timespec="milliseconds").replace(
                    "+00:00", "Z"
                ),
                "idempotency_key": run.idempotency_key,
                "run_id": run.id,
                "attempt": 1,
                "workflow_id": "invoices",
                "version": 3,
                "payload": {"month": 5},
            },
        }


async def test_the_source_of_a_tick_is_the_schedule(new_app: NewApp):
    app = new_app()
    given = executing(app)
    async with app:
        await deployed(app)
        await app.jobs.create("bill", **to_function(schedule="every 1s"))
        await eventually(lambda: given)
        payload = given[0].payload
        assert isinstance(payload, dict)
        meta = payload["meta"]
        assert isinstance(meta, dict)
        assert meta["source"] == "schedule"
        assert "payload" not in meta


async def test_the_webhook_of_a_workflow_is_signed_with_the_secret_of_the_job(
    new_app: NewApp, receiver: Receiver
):
    async with new_app() as app:
        await deployed(app)
        saved = await app.jobs.create("bill", schedule=SELDOM, webhook_url=receiver.url, **_fields())
        run = await over(app, (await app.jobs.run("bill")).id)
        assert run.state == "succeeded"
        verifies(receiver, saved.secret)
        body = json.loads(receiver.bodies[0])
        assert (body["job"], body["payload"]["dag"]) == ("bill", DAG)
        assert b'"id":"Zo\xc3\xab"' in receiver.bodies[0], "as it was stored"
        assert receiver.headers["webhook-id"] == body["payload"]["meta"]["idempotency_key"]


async def test_a_missing_workflow_is_retried_until_it_is_deployed(new_app: NewApp):
    app = new_app()
    given = executing(app)
    async with app:
        await app.jobs.create("bill", **to_function(max_attempts=100))
        run = await app.jobs.run("bill")

        async def missed_it() -> bool:
            return len(await app.runs.attempts(run.id)) > 1

        await eventually(missed_it)
        await deployed(app)
        assert (await over(app, run.id)).state == "succeeded"
        (launched,) = given
        assert launched.idempotency_key == run.idempotency_key
        first = (await app.runs.attempts(run.id))[0]
        assert first.error == (
            "there is no version 3 of the workflow 'invoices' in the workspace 'default'; deploy it"
        )


async def test_a_workflow_without_a_target_waits_to_be_claimed(new_app: NewApp):
    async with new_app() as app:
        await app.jobs.create("bill", schedule=SELDOM, lane="main", **_fields())
        run = await app.jobs.run("bill")
        assert (run.state, run.lane, run.until_at is None) == ("pending", "main", False)


@on_one_store
@pytest.mark.parametrize(
    ("to", "says"),
    [
        ({"kind": "function"}, "needs a name"),
        ({"kind": "webhook", "url": "https://example.com", "colour": "red"}, "no field 'colour'"),
        ({"kind": "smtp"}, "the kind 'smtp' is not known"),
        ({"kind": "workflow", "workflowId": "a", "version": 1}, "another workflow"),
        ({"kind": "pull", "claimTimeoutMs": 0}, "claimTimeoutMs"),
    ],
)
async def test_the_target_of_a_workflow_is_validated_when_the_job_is_saved(
    new_app: NewApp, to: Any, says: str
):
    async with new_app() as app:
        with pytest.raises(InvalidArgument, match=says):
            await app.jobs.create("bill", schedule=SELDOM, target={"kind": "workflow", **INVOICES, "to": to})


@on_one_store
async def test_an_unknown_field_of_a_workflow_target_is_refused(new_app: NewApp):
    async with new_app() as app:
        target = {"kind": "workflow", **INVOICES, "target": {"kind": "pull"}}
        with pytest.raises(InvalidArgument, match="no field 'target'; it has workflowId, version"):
            await app.jobs.create("bill", schedule=SELDOM, target=target)


class _Deployed:
    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow:
        return WorkflowRow(workspace, workflow_id, version, "{}", 0)


async def test_the_webhook_of_a_workflow_has_the_default_webhook_timeout(receiver: Receiver):
    async with launching() as webhooks:
        webhooks.default_timeout_ms = 50
        receiver.answer = _never
        launcher = WorkflowLauncher(_Deployed(), lambda kind: webhooks)
        to: dict[str, Json] = {"kind": "webhook", "url": receiver.url}
        target: dict[str, Json] = {"kind": "workflow", **INVOICES, "to": to}
        outcome = await launcher.start(launch(target))
    assert outcome == Failed("timed out after 0.05 s", reason="timeout")


async def test_an_unregistered_target_kind_is_a_retryable_failure():
    launcher = WorkflowLauncher(_Deployed(), lambda kind: None)
    target: dict[str, Json] = {"kind": "workflow", **INVOICES, "to": {"kind": "function", "name": "bill"}}
    outcome = await launcher.start(launch(target))
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.reason) == (False, "not_registered")


class _Faulty:
    """A store of workflows that can be made unavailable."""

    cut_off = False

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        if self.cut_off:
            raise Unavailable("no database")
        return WorkflowRow(workspace, workflow_id, version, "{}", 0)


async def test_a_database_outage_while_loading_a_workflow_uses_no_attempt():
    stored = _Faulty()
    stored.cut_off = True
    functions = FunctionLauncher()
    functions.register("work", _nothing)
    launcher = WorkflowLauncher(stored, lambda kind: functions)
    target: dict[str, Json] = {"kind": "workflow", **INVOICES, "to": {"kind": "function", "name": "work"}}
    assert await launcher.start(launch(target)) == Failed("no database", reason="unavailable", counted=False)
    stored.cut_off = False
    assert await launcher.start(launch(target)) == Succeeded()
    stored.cut_off = True
    assert await launcher.start(launch(target)) == Succeeded(), "it was read before"


async def _nothing() -> None: ...


async def _never(request: object) -> Any:
    await asyncio.get_running_loop().create_future()


def _fields() -> dict[str, Any]:
    return {"workflow_id": "invoices", "version": 3, "user_id": "ada"}
