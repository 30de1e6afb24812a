"""Test a target before a job is saved, or the target of a job. A test is no run: nothing is recorded of it.

A webhook gets one signed request from the launcher of real runs, with the same guard, timeout and limits, and
with `x-wakeful-trigger: test`. The other kinds are only checked: nothing runs, and no model is called.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from yarl import URL

from wakeful.document import payload_to_text, read_definition, write_definition
from wakeful.document.target import TARGET_FIELDS
from wakeful.errors import InvalidArgument, PermissionDenied, Unavailable
from wakeful.job.job import Definition, JobRecord, Work, check_slug, inherit
from wakeful.job.start_rules import find_requirement
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.launch.celery.launcher import CeleryLauncher
from wakeful.launch.port import Launch, SealedSecrets
from wakeful.launch.queue.launcher import QueueLauncher
from wakeful.launch.secrets import RunSecrets, format_secret, new_secret
from wakeful.launch.webhook import Exchange, WebhookLauncher
from wakeful.service.agents.inheritance import signed_by_agent
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import JobContext
from wakeful.service.auth.masking import mask_value, sees_credentials, unmask
from wakeful.service.auth.rate_limits import RateLimited, RateLimiter
from wakeful.service.jobs.job_editor import JobDependencies, JobEditor
from wakeful.service.runs.executors import RECENTLY, Executors, Replicas
from wakeful.store.row_mapping import job_from_row
from wakeful.store.rows import JobRow
from wakeful.values.duration import spell_duration
from wakeful.values.ids import new_id
from wakeful.values.json_value import Json, compact

#: The trigger of a test, in the header `x-wakeful-trigger`.
TRIGGER: Final = "test"
PER_MINUTE: Final = 30
#: A test waits no longer for a response, even if the job does.
MAX_WAIT_MS: Final = 30_000
#: The fields of a job that determine a test.
FIELDS: Final = ("name", "payload", "message", "timeout", "timeoutMs", "lane", *TARGET_FIELDS)
#: Seconds to wait for a connection to a broker.
_CONNECT_S: Final = 3.0
_UNNAMED: Final = "test"
_ADVICE: Final = {
    401: "check the headers of the target, and that the receiver verifies signatures with this secret",
    403: "check the headers of the target, and that the receiver verifies signatures with this secret",
    404: "check the path of the URL",
    405: "the receiver must accept POST at this URL",
    413: "send a smaller payload",
}
_UNREACHABLE: Final = "check the URL, and that the receiver runs and is reachable from this server"
_SLOW: Final = (
    'answer sooner, give the job a longer timeout, or set `completion: "callback"` and complete the run later'
)


@dataclass(frozen=True, slots=True)
class TargetTest:
    """The result of a test."""

    kind: str
    ok: bool
    #: what was found, and what to do if it is not ok
    message: str
    duration_ms: int | None = None
    #: the request that was sent and its response, as the caller may see them
    exchange: Exchange | None = None
    #: the secret that signed the request, if it was made for the test
    secret: str | None = None


class TargetTests:
    """Tests targets."""

    def __init__(self, dependencies: JobDependencies, executors: Executors, replicas: Replicas) -> None:
        self._store = dependencies.store
        self._accounts = dependencies.accounts
        self._launchers = dependencies.launchers
        self._target_policy = dependencies.target_policy
        self._origins = dependencies.origins
        self._secrets = RunSecrets(dependencies.keyring, dependencies.store.clock)
        self._editor = JobEditor(dependencies)
        self._executors = executors
        self._replicas = replicas
        self._limiter = RateLimiter[tuple[str, str]](PER_MINUTE)

    async def test(
        self, principal: Principal, workspace: str, agent: str, document: Mapping[str, object]
    ) -> TargetTest:
        """Test the target of a document. `job` names a job whose fields and secret are used.

        Without a target, that of the agent is tested. Errors of the document are those of a creation.
        """
        await self._accounts.authorize(principal, "job.write", workspace, agent)
        name = document.get("job")
        row = None
        if name is not None:
            row = await self._editor.find_row(principal, "job.write", workspace, agent, str(name))
        await self._origins.call(principal, workspace, agent)  # the run that it names must be running
        context = await self._accounts.context(workspace, check_slug(agent, "agent"))
        old = None if row is None else job_from_row(row)
        definition = self._definition(document, old, context)
        work = definition.work
        if principal.role == "agent":
            if context.approval:
                raise PermissionDenied(
                    f"the jobs of agent '{agent}' wait for approval, so its key may not test a target; an "
                    "admin may"
                )
            self._target_policy.check(principal, work, context, old.definition.work if old else None)
        self._launchers.check(work.target)
        now_ms = self._store.clock.now_ms()
        wait_s = self._limiter.take((workspace, principal.actor), now_ms)
        if wait_s:
            raise RateLimited(
                f"too many tests: at most {PER_MINUTE} a minute; try again in {wait_s} s", wait_s
            )
        details: dict[str, Json] = {"kind": _kind(work)}
        if TARGET_KINDS[_kind(work)].is_signed:
            details["host"] = _host(work)
        subject = f"{agent}/{definition.name}"
        entry = principal.entry(workspace, "job.test-target", subject, compact(details))
        await self._store.append_audit([entry])
        if TARGET_KINDS[_kind(work)].is_signed:
            return await self._webhook(principal, definition, row, context)
        return await self._checked(workspace, agent, work)

    def _definition(
        self, document: Mapping[str, object], old: JobRecord | None, context: JobContext
    ) -> Definition:
        given = {name: document[name] for name in FIELDS if name in document}
        if old is not None:
            stored = write_definition(old.definition)
            names = {"name", "payload", "message", "lane", "timeoutMs", *TARGET_FIELDS}
            if "timeout" in given:
                names.discard("timeoutMs")
            if any(name in given for name in TARGET_FIELDS):
                names -= {*TARGET_FIELDS}
            given = {**{name: stored[name] for name in names if name in stored}, **given}
        given = dict(unmask(given, old.definition if old else None))
        # A job needs a schedule; a test has none.
        document = {"name": _UNNAMED, **given, "schedule": "every 1h"}
        if not document["name"]:
            document["name"] = _UNNAMED
        read = read_definition(document, now_ms=self._store.clock.now_ms(), defaults=context.defaults)
        return replace(read, work=inherit(read.work, context.target))

    async def _webhook(
        self, principal: Principal, definition: Definition, row: JobRow | None, context: JobContext
    ) -> TargetTest:
        launcher = self._launchers.launcher("webhook")
        if not isinstance(launcher, WebhookLauncher):
            raise InvalidArgument("target: no launcher for 'webhook' here")
        work, now_ms = definition.work, self._store.clock.now_ms()
        run_id = new_id(now_ms)
        launch = Launch(
            run_id,
            definition.name,
            None if row is None else row.id,
            context.workspace,
            context.agent,
            payload_to_text(work.body),
            now_ms,
            now_ms,
            1,
            TRIGGER,
            f"{TRIGGER}-{run_id}",
            work.target or {},
            secrets=_sealed(work, row, context),
        )
        secret = None if launch.secrets is not None else new_secret()
        secrets = self._secrets.find_secrets(launch) if secret is None else (secret,)
        wait_ms = min(definition.policy.timeout_ms or MAX_WAIT_MS, MAX_WAIT_MS)
        began = time.monotonic()
        exchange = await launcher.test(launch, secrets, wait_ms)
        took_ms = round((time.monotonic() - began) * 1000)
        return TargetTest(
            "webhook",
            exchange.failure is None,
            _verdict(exchange, took_ms, callback=work.awaits_callback),
            took_ms,
            exchange if sees_credentials(principal) else _hidden(exchange, work),
            None if secret is None else format_secret(secret),
        )

    async def _checked(self, workspace: str, agent: str, work: Work) -> TargetTest:
        """Return what is known about a target that a test does not launch."""
        kind = _kind(work)
        requirement = find_requirement(work, workspace, agent)
        if requirement.name and await self._replicas.lack_for_saving(requirement):
            return TargetTest(kind, False, requirement.advice)
        match kind:
            case "pull":
                return await self._pull(workspace, agent, work)
            case "workflow":
                return await self._workflow(workspace, work)
            case "queue":
                return await self._queue()
            case "celery" if self._launchers.can_launch(requirement):
                return await self._celery()
            case "celery":
                text = f"this process does not have {requirement.description}; others may: runs wait for one"
            case _ if requirement.name:
                here = self._launchers.can_launch(requirement)
                place = "this process" if here else "another running process"
                text = f"{place} has {requirement.description}; a test does not run it"
            case _:
                text = TARGET_KINDS[kind].test_text
        return TargetTest(kind, True, text)

    async def _queue(self) -> TargetTest:
        launcher = self._launchers.launcher("queue")
        if not isinstance(launcher, QueueLauncher):
            raise InvalidArgument("target: no launcher for 'queue' here")
        try:
            await launcher.connection.client(_CONNECT_S)
        except Unavailable as error:
            return TargetTest("queue", False, f"{error.message}; check the server and WAKEFUL_NATS_URL")
        server = launcher.connection.server
        return TargetTest("queue", True, f"NATS at {server} is connected; a test publishes nothing")

    async def _celery(self) -> TargetTest:
        launcher = self._launchers.launcher("celery")
        if not isinstance(launcher, CeleryLauncher):
            raise InvalidArgument("target: no launcher for 'celery' here")
        try:
            async with asyncio.timeout(_CONNECT_S):
                health = await launcher.examine()
        except (Unavailable, TimeoutError) as error:
            why = error.message if isinstance(error, Unavailable) else f"no response in {_CONNECT_S:g} s"
            return TargetTest("celery", False, f"the Celery broker or its results are not reachable: {why}")
        broker = "" if health is None else f" at {health.broker}"
        worker = "a worker answers" if health is not None and health.has_worker else "no worker answers"
        return TargetTest(
            "celery", True, f"the Celery broker{broker} is connected; {worker}; a test sends no task"
        )

    async def _pull(self, workspace: str, agent: str, work: Work) -> TargetTest:
        seen_ms = await self._executors.last_seen_ms(workspace, agent, work.lane)
        if seen_ms is None:
            advice = f"no executor has asked for runs of agent '{agent}' in the last {RECENTLY}; start one"
            return TargetTest("pull", False, advice)
        ago = spell_duration((self._store.clock.now_ms() - seen_ms) // 1000 * 1000) or "0 seconds"
        return TargetTest("pull", True, f"an executor asked for runs of agent '{agent}' {ago} ago")

    async def _workflow(self, workspace: str, work: Work) -> TargetTest:
        target = work.target or {}
        workflow_id, version = (str(target.get("workflowId")), target.get("version"))
        number = version if isinstance(version, int) else 0
        if await self._store.workflow(workspace, workflow_id, number) is None:
            advice = f"there is no version {number} of workflow '{workflow_id}'; store it first"
            return TargetTest("workflow", False, advice)
        kind = (work.final_target or {}).get("kind", "pull")
        return TargetTest("workflow", True, f"the workflow exists; a test does not send it to its {kind}")


def _kind(work: Work) -> str:
    return str((work.target or {}).get("kind", "pull"))


def _host(work: Work) -> str:
    try:
        return URL(str((work.target or {}).get("url"))).host or ""
    except ValueError:
        return ""


def _sealed(work: Work, row: JobRow | None, context: JobContext) -> SealedSecrets | None:
    """Return the secrets that sign the runs of a saved job; None: it has none yet."""
    agent = context.inherited
    if signed_by_agent(work, agent) and agent.secret is not None:
        return SealedSecrets(agent.secret, agent.old_secret, agent.old_secret_until_ms)
    if row is None or row.secret is None:
        return None
    return SealedSecrets(row.secret, row.old_secret, row.old_secret_until_ms)


def _verdict(exchange: Exchange, took_ms: int, *, callback: bool) -> str:
    failure, status = exchange.failure, exchange.status
    if failure is None:
        then = "; a real run then waits for the request that completes it" if callback else ""
        return f"the receiver answered {status} after {took_ms} ms{then}"
    if failure.reason == "timeout":
        return f"{failure.error}; {_SLOW}"
    if status is not None:
        advice = _ADVICE.get(status)
        return failure.error if advice is None else f"{failure.error}; {advice}"
    return failure.error if failure.reason == "address_refused" else f"{failure.error}; {_UNREACHABLE}"


def _hidden(exchange: Exchange, work: Work) -> Exchange:
    """Return a request without the credentials of its target."""
    shown = mask_value({"url": exchange.url, "headers": dict((work.target or {}).get("headers") or {})})  # type: ignore[arg-type]
    assert isinstance(shown, dict)
    own = shown["headers"]
    assert isinstance(own, dict)
    headers = {**exchange.headers, **{name.lower(): str(value) for name, value in own.items()}}
    return exchange._replace(url=str(shown["url"]), headers=headers)
