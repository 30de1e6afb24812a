"""The executor for Kubernetes, between a real Wakeful server and an API server that keeps the real rules."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.integration.conftest import on_one_store
from tests.integration.remote.test_worker import start
from tests.integration.service.runs.test_executors import end_leases
from tests.support.api_client import ApiClient
from tests.support.kubernetes_api import KubernetesApi as ApiServer
from tests.support.waiting import PATIENCE, eventually, in_state, over
from wakeful.errors import Unavailable
from wakeful.model import Run
from wakeful.model.codec import from_json
from wakeful.remote import Worker, WorkerConfig
from wakeful.remote.kubernetes.api import KubernetesApi
from wakeful.remote.kubernetes.executor import ExecutorConfig, KubernetesExecutor
from wakeful.remote.kubernetes.templates import ATTEMPT, RUN_ID, Manifest, job_name
from wakeful.remote.reporter import ReconnectBackoff

pytest.importorskip("kubernetes_asyncio")
pytestmark = on_one_store

WORKER = WorkerConfig(
    wait_ms=1_000,
    heartbeat_s=0.05,
    timeout_s=PATIENCE,
    leave_running=True,
    backoff=ReconnectBackoff(0.01, 0.1),
)
QUICK = ExecutorConfig(adopt_s=0.05, start_check_s=0.05, start_grace_s=0.1)
#: what deploy/kubernetes gives to the executor
ROLE: list[dict[str, Any]] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]
#: what a run shows while its pod has no node
FULL = "its pod waits for a node: 0/3 nodes are available: 3 Insufficient cpu."


def template(**pod: object) -> Manifest:
    container = {"name": "work", "image": "busybox", "env": [{"name": "MODE", "value": "test"}]}
    return {"kind": "Job", "spec": {"template": {"spec": {"containers": [container], **pod}}}}


@pytest.fixture
async def cluster() -> AsyncIterator[ApiServer]:
    async with ApiServer(permitted=ROLE) as server:
        yield server


async def new_executor(
    ask: ApiClient, cluster: ApiServer, config: ExecutorConfig = QUICK, **templates: Manifest
) -> KubernetesExecutor:
    from kubernetes_asyncio.client import Configuration

    access = Configuration(host=cluster.url)
    access.api_key = {"BearerToken": f"Bearer {cluster.token}"}
    worker = Worker(ask.url, ask.key, name="cluster-1", config=WORKER)
    api = KubernetesApi(access, cluster.namespace)
    return KubernetesExecutor(
        worker, api, {"default": template(), **templates}, name="cluster-1", config=config
    )


@asynccontextmanager
async def serving(executor: KubernetesExecutor) -> AsyncIterator[asyncio.Task[None]]:
    """Run an executor until the end of the block."""
    task = asyncio.create_task(executor.serve())
    try:
        yield task
        if not task.done():
            executor.stop()
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def the_job(cluster: ApiServer, run_id: str, attempt: int = 1) -> str:
    """Wait for the Job of an attempt, and return its name."""

    def look() -> str | None:
        for job in cluster.jobs():
            labels = job["metadata"]["labels"]
            if (labels[RUN_ID], labels[ATTEMPT]) == (run_id, str(attempt)):
                return str(job["metadata"]["name"])
        return None

    return str(await eventually(look))


async def is_waiting(ask: ApiClient, run_id: str, pattern: str) -> bool:
    return bool(re.search(pattern, (await ask.app.runs.get(run_id)).waiting_for or ""))


async def has_started(ask: ApiClient, run_id: str, *, after: datetime | None, seconds: float) -> bool:
    started = (await ask.app.runs.get(run_id)).started_at
    assert started is not None
    assert after is not None
    return started >= after + timedelta(seconds=seconds)


def names(cluster: ApiServer) -> list[str]:
    return [str(job["metadata"]["name"]) for job in cluster.jobs()]


def count(cluster: ApiServer, verb: str) -> int:
    return cluster.verbs().count(verb)


async def test_a_run_is_one_job_and_its_log_is_the_output(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", payload={"cost": "$(MODE) $5"}, timeoutMs=90_000)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: executor.ready)
        cluster.start_pod(name)
        cluster.finish_pod(name, 0, log="working\ndone\n")
        run = await over(ask.app, run_id)
    assert (run.state, run.output, run.worker) == ("succeeded", "working\ndone", "cluster-1")
    assert (count(cluster, "create jobs"), count(cluster, "delete jobs")) == (1, 0)
    job = cluster.job(name)
    assert name == job_name(run)
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (
        0, 90, 3_600,
    )  # fmt: skip
    pod = spec["template"]["spec"]
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert pod["restartPolicy"] == "Never"
    assert variables["MODE"] == "test"
    assert variables["JOB_PAYLOAD"] == '{"cost":"$$(MODE) $$5"}'
    assert (variables["WAKEFUL_RUN_ID"], variables["WAKEFUL_ATTEMPT"]) == (run_id, "1")
    assert variables["WAKEFUL_IDEMPOTENCY_KEY"] == run.idempotency_key


async def test_failures_have_the_exit_code_and_reason_of_the_pod(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    names = ("exit", "memory", "deadline", "image")
    ids = {name: await start(ask, name, maxAttempts=1, timeoutMs=600_000) for name in names}
    async with serving(executor):
        jobs = {name: await the_job(cluster, run_id) for name, run_id in ids.items()}
        cluster.start_pod(jobs["exit"])
        cluster.finish_pod(jobs["exit"], 3, log="no such customer")
        cluster.start_pod(jobs["memory"])
        cluster.finish_pod(jobs["memory"], 137, reason="OOMKilled")
        cluster.start_pod(jobs["deadline"])
        cluster.exceed_deadline(jobs["deadline"])
        cluster.waiting(jobs["image"], "ImagePullBackOff", "Back-off pulling image")
        runs = {name: await over(ask.app, run_id) for name, run_id in ids.items()}
        await eventually(lambda: count(cluster, "delete jobs") == 1)
    assert {run.state for run in runs.values()} == {"failed"}
    assert (runs["exit"].error, runs["exit"].output) == ("exit code 3 (Error)", "no such customer")
    assert runs["memory"].error == "exit code 137 (OOMKilled)"
    assert (runs["deadline"].error or "").startswith("DeadlineExceeded")
    assert runs["image"].error == "its pod cannot start: ImagePullBackOff: Back-off pulling image"


async def test_a_failed_attempt_is_retried_as_another_job(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=2, backoff={"baseMs": 1, "maxMs": 1})
    async with serving(executor):
        cluster.finish_pod(await the_job(cluster, run_id), 1)
        cluster.finish_pod(await the_job(cluster, run_id, 2), 0, log="at last")
        run = await over(ask.app, run_id)
    assert (run.state, run.attempt, run.output) == ("succeeded", 2, "at last")


async def test_a_killed_executor_leaves_its_jobs_to_its_successor(ask: ApiClient, cluster: ApiServer):
    ids = {name: await start(ask, name, maxAttempts=1) for name in ("running", "finished", "stopped")}
    first = await new_executor(ask, cluster)
    async with serving(first) as task:
        jobs = {name: await the_job(cluster, run_id) for name, run_id in ids.items()}
        await eventually(lambda: first.running == 3)
        task.cancel()
        await asyncio.wait({task})
    assert len(cluster.jobs()) == 3
    cluster.finish_pod(jobs["finished"], 0, log="meanwhile")
    assert (await ask("POST", f"/runs/{ids['stopped']}/stop")).status == 200

    second = await new_executor(ask, cluster)
    async with serving(second):
        assert (await over(ask.app, ids["finished"])).output == "meanwhile"
        await eventually(lambda: {job["metadata"]["name"] for job in cluster.jobs()} == {
            jobs["running"], jobs["finished"]
        })  # fmt: skip
        cluster.finish_pod(jobs["running"], 0, log="afterwards")
        run = await over(ask.app, ids["running"])
    assert (run.output, run.attempt) == ("afterwards", 1)
    assert count(cluster, "create jobs") == 3


async def test_a_run_that_cannot_be_read_keeps_no_other_from_its_successor(
    ask: ApiClient, cluster: ApiServer, monkeypatch: pytest.MonkeyPatch
):
    first = await new_executor(ask, cluster)
    async with serving(first) as task:
        odd, plain = [await start(ask, name, maxAttempts=1) for name in ("odd", "plain")]
        jobs = [await the_job(cluster, run_id) for run_id in (odd, plain)]
        await eventually(lambda: first.running == 2)
        task.cancel()
        await asyncio.wait({task})

    def read(kind: type[Run], run: Any) -> Run:
        if run["id"] == odd:
            raise Unavailable("of a newer version")
        return from_json(kind, run)

    monkeypatch.setattr("wakeful.remote.kubernetes.executor.from_json", read)
    second = await new_executor(ask, cluster)
    async with serving(second):
        await eventually(lambda: second.running == 1)
        await eventually(lambda: [job["metadata"]["name"] for job in cluster.jobs()] == jobs[1:])
        cluster.finish_pod(jobs[1], 0, log="done")
        assert (await over(ask.app, plain)).output == "done"
        third = await start(ask, "third")
        cluster.finish_pod(await the_job(cluster, third), 0)
        assert (await over(ask.app, third)).state == "succeeded"


async def test_a_job_whose_creation_was_not_confirmed_is_adopted(ask: ApiClient, cluster: ApiServer):
    cluster.lose_next_answer("create")
    executor = await new_executor(ask, cluster, ExecutorConfig())
    run_id = await start(ask, "digest")
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: count(cluster, "create jobs") == 2)  # the second one is refused: 409
        cluster.finish_pod(name, 0, log="once")
        run = await over(ask.app, run_id)
    assert (run.state, run.output, len(cluster.jobs())) == ("succeeded", "once", 1)


async def test_jobs_are_listed_again_if_a_watch_cannot_continue(ask: ApiClient, cluster: ApiServer):
    cluster.refuse_next("watch", 410, "Expired", "too old resource version")
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest")
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: cluster.watches == 1 and executor.watcher.job(name))
        assert executor.watcher.lists == 2
        # The versions are gone before the watch can read the change.
        cluster.finish_pod(name, 0, log="done")
        cluster.compact()
        run = await over(ask.app, run_id)
        assert executor.watcher.lists == 3
    assert run.output == "done"


async def test_a_stopped_run_deletes_its_job_and_pods(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest")
    async with serving(executor):
        cluster.start_pod(await the_job(cluster, run_id))
        assert (await ask("POST", f"/runs/{run_id}/stop")).status == 200
        await eventually(lambda: not cluster.jobs() and not cluster.pods())
    assert (await over(ask.app, run_id)).state == "cancelled"


async def test_the_job_of_an_expired_lease_is_deleted(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=3)
    async with serving(executor):
        first = await the_job(cluster, run_id)
        cluster.start_pod(first)
        await end_leases(ask.app)
        second = await the_job(cluster, run_id, 2)
        await eventually(lambda: [job["metadata"]["name"] for job in cluster.jobs()] == [second])
        cluster.finish_pod(second, 0, log="second")
        run = await over(ask.app, run_id)
    assert (run.output, run.attempt) == ("second", 2)


async def test_work_continues_after_an_outage_of_the_api_server(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest")
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: executor.ready)
        await cluster.stop()
        await eventually(lambda: not executor.ready)
        cluster.finish_pod(name, 0, log="during the outage")
        later = await start(ask, "later")
        assert (await ask.app.runs.get(run_id)).state == "running"
        await cluster.start()
        run = await over(ask.app, run_id)
        cluster.finish_pod(await the_job(cluster, later), 0)
        assert (await over(ask.app, later)).state == "succeeded"
    assert (run.output, run.attempt) == ("during the outage", 1)


async def test_an_executor_waits_for_the_api_server_before_it_claims(ask: ApiClient, cluster: ApiServer):
    await cluster.stop()
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest")
    async with serving(executor):
        await eventually(lambda: executor.watcher.failures > 1)
        assert (await ask.app.runs.get(run_id)).state == "pending"
        await cluster.start()
        cluster.finish_pod(await the_job(cluster, run_id), 0)
        assert (await over(ask.app, run_id)).state == "succeeded"


async def test_a_payload_chooses_a_template_by_its_name(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster, gpu=template(nodeSelector={"pool": "gpu"}))
    ids = [
        await start(ask, f"job-{name}", payload={"kubernetesTemplate": name}, maxAttempts=3)
        for name in ("gpu", "unknown")
    ]
    async with serving(executor):
        name = await the_job(cluster, ids[0])
        cluster.finish_pod(name, 0)
        runs = [await over(ask.app, run_id) for run_id in ids]
    assert cluster.job(name)["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert (runs[1].error, runs[1].attempt) == (
        "kubernetesTemplate: there is no template 'unknown'; known: default, gpu", 1,
    )  # fmt: skip


async def test_a_job_that_the_api_server_refuses_fails_without_a_retry(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster, odd=template(volumes=[{"name": "No_Name"}]))
    run_id = await start(ask, "digest", payload={"kubernetesTemplate": "odd"}, maxAttempts=3)
    cluster.refuse_next("create", 422, "Invalid", "spec.template: Invalid value")
    async with serving(executor):
        run = await over(ask.app, run_id)
    assert (run.state, run.attempt) == ("failed", 1)
    assert "the Job was refused: Kubernetes responded 422 Invalid" in (run.error or "")


@pytest.mark.parametrize("cause", ["right", "node"])
async def test_a_job_counts_as_it_ended_if_its_log_cannot_be_read(
    ask: ApiClient, cluster: ApiServer, cause: str
):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=1)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        if cause == "right":
            cluster.permitted = ROLE[:2]
        for _ in range(100 if cause == "node" else 0):
            cluster.refuse_next("get", 500, "InternalError", 'Get "https://node-1:10250": no route to host')
        cluster.finish_pod(name, 0, log="lost")
        run = await over(ask.app, run_id)
    assert (run.state, run.output) == ("succeeded", None)


async def test_a_run_waits_for_a_quota_and_no_attempt_counts(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    cluster.quota = 1
    async with serving(executor):
        first = await start(ask, "first", maxAttempts=1)
        busy = await the_job(cluster, first)
        second = await start(ask, "second", maxAttempts=1)
        await eventually(lambda: count(cluster, "create jobs") >= 3)
        shown = await in_state(ask.app, second, "retrying")
        assert (shown.reason, shown.failed_attempts) == ("not_started", 0)
        used = "requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1"
        assert shown.error == f"the cluster has no room: exceeded quota: objects, {used}"
        await eventually(lambda: is_waiting(ask, second, f"attempt 1 of 1 at .*last error: {shown.error}"))
        cluster.finish_pod(busy, 0)
        assert (await over(ask.app, first)).state == "succeeded"
        cluster.quota = 2
        name = str(await eventually(lambda: next((each for each in names(cluster) if each != busy), None)))
        cluster.finish_pod(name, 0, log="at last")
        run = await over(ask.app, second)
    assert (run.state, run.output, run.failed_attempts) == ("succeeded", "at last", 0)


async def test_a_job_that_used_up_the_quota_itself_is_adopted(ask: ApiClient, cluster: ApiServer):
    cluster.quota = 1
    cluster.lose_next_answer("create")
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=1)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: count(cluster, "create jobs") == 2)  # the second one is over the quota
        cluster.finish_pod(name, 0, log="once")
        run = await over(ask.app, run_id)
    assert (run.state, run.attempt, run.output, len(cluster.jobs())) == ("succeeded", 1, "once", 1)


async def test_requests_that_the_api_server_cannot_serve_now_are_repeated(ask: ApiClient, cluster: ApiServer):
    message = 'Operation cannot be fulfilled on resourcequotas "objects": the object has been modified'
    cluster.refuse_next("create", 409, "Conflict", message)
    cluster.refuse_next("create", 429, "TooManyRequests", retry_after=1)
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=1)
    loop = asyncio.get_running_loop()
    async with serving(executor):
        await eventually(lambda: count(cluster, "create jobs") == 2)
        refused = loop.time()
        cluster.finish_pod(await the_job(cluster, run_id), 0)
        assert loop.time() - refused > 0.9  # as the server asked for
        run = await over(ask.app, run_id)
    assert (run.state, run.attempt) == ("succeeded", 1)


async def test_a_missing_right_is_explained(ask: ApiClient, cluster: ApiServer):
    cluster.permitted = [{**ROLE[0], "verbs": ["get", "list", "watch", "delete"]}, *ROLE[1:]]
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=1)
    async with serving(executor):
        run = await over(ask.app, run_id)
    assert (run.state, run.failed_attempts) == ("failed", 1)
    assert (run.error or "").startswith("the executor may not create this Job in namespace 'default'")
    assert 'cannot create resource "jobs"' in (run.error or "")
    assert "check its Role" in (run.error or "")


async def test_a_suspended_job_waits_until_it_is_resumed_and_its_timeout_too(
    ask: ApiClient, cluster: ApiServer
):
    queued = template()
    queued["spec"]["suspend"] = True
    executor = await new_executor(ask, cluster, default=queued)
    run_id = await start(ask, "digest", maxAttempts=1, timeoutMs=1_000)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        assert not cluster.pods()
        await eventually(lambda: is_waiting(ask, run_id, "on executor cluster-1: its Job is suspended"))
        first = (await ask.app.runs.get(run_id)).started_at
        await eventually(lambda: has_started(ask, run_id, after=first, seconds=1.2))  # past its timeout
        cluster.resume(name)
        cluster.start_pod(name)
        await eventually(lambda: is_waiting(ask, run_id, "on executor cluster-1 since"))
        cluster.finish_pod(name, 0, log="done")
        run = await over(ask.app, run_id)
    assert (run.state, run.attempt, run.output) == ("succeeded", 1, "done")


async def test_a_resumed_job_has_the_timeout_of_its_run(ask: ApiClient, cluster: ApiServer):
    queued = template()
    queued["spec"]["suspend"] = True
    executor = await new_executor(ask, cluster, default=queued)
    run_id = await start(ask, "digest", maxAttempts=1, timeoutMs=500)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: is_waiting(ask, run_id, "its Job is suspended"))
        cluster.resume(name)
        cluster.start_pod(name)
        run = await over(ask.app, run_id)
        await eventually(lambda: not cluster.jobs())
    assert (run.state, run.error) == ("failed", "timed out after 0.5 s")


async def test_a_run_shows_that_its_pod_waits_for_a_node(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    ids = [await start(ask, name, maxAttempts=1, timeoutMs=600_000) for name in ("later", "never")]
    async with serving(executor):
        later, never = [await the_job(cluster, run_id) for run_id in ids]
        for name in (later, never):
            cluster.unschedulable(name)
        for run_id in ids:
            await eventually(partial(is_waiting, ask, run_id, f"cluster-1: {FULL}"))
        cluster.start_pod(later)
        await eventually(lambda: is_waiting(ask, ids[0], "on executor cluster-1 since"))
        cluster.finish_pod(later, 0)
        cluster.exceed_deadline(never)
        runs = [await over(ask.app, run_id) for run_id in ids]
    assert [run.state for run in runs] == ["succeeded", "failed"]
    assert (runs[1].error or "").startswith("DeadlineExceeded")
    assert (runs[1].error or "").endswith(f"it had not started: {FULL}")


async def test_a_job_that_an_operator_deletes_has_failed(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=1)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: executor.watcher.job(name))
        cluster.objects.remove(("jobs", cluster.namespace, name))
        run = await over(ask.app, run_id)
    assert run.error == "its Job was deleted before it had finished"


async def test_a_job_that_is_deleted_as_soon_as_it_has_finished_counts(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest", maxAttempts=2)
    async with serving(executor):
        name = await the_job(cluster, run_id)
        await eventually(lambda: executor.ready)
        cluster.start_pod(name)
        cluster.finish_pod(name, 0, log="done")
        cluster.objects.remove(("jobs", cluster.namespace, name))  # ttlSecondsAfterFinished: 0
        run = await over(ask.app, run_id)
    assert (run.state, run.attempt) == ("succeeded", 1)
    assert count(cluster, "create jobs") == 1


async def test_a_stopped_executor_leaves_its_jobs_running(ask: ApiClient, cluster: ApiServer):
    executor = await new_executor(ask, cluster)
    run_id = await start(ask, "digest")
    async with serving(executor):
        await the_job(cluster, run_id)
        await eventually(lambda: executor.running)
    await in_state(ask.app, run_id, "running")
    assert len(cluster.jobs()) == 1
