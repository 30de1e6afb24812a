"""The executor for Kubernetes with a real control plane, if its programs are installed.

The API server of the other tests refuses what the real one refuses.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import yaml
from kubernetes_asyncio import client
from kubernetes_asyncio.client.exceptions import ApiException

from tests.integration.conftest import on_one_store
from tests.integration.remote.test_kubernetes import QUICK, WORKER, is_waiting, serving, template
from tests.integration.remote.test_worker import start
from tests.integration.support.test_kubernetes_api import FAIL_INDEX, INDEXED, INVALID, job
from tests.support.api_client import ApiClient
from tests.support.kubernetes_api import KubernetesApi as StandIn
from tests.support.kubernetes_cluster import ADMIN, EXECUTOR, control_plane, missing_programs
from tests.support.paths import ROOT
from tests.support.waiting import eventually, in_state, over
from tests.unit.remote.kubernetes.test_templates import RUN
from wakeful.remote import Worker
from wakeful.remote.kubernetes.api import KubernetesApi
from wakeful.remote.kubernetes.executor import KubernetesExecutor
from wakeful.remote.kubernetes.templates import RUN_ID, Manifest, job_manifest

pytestmark = pytest.mark.skipif(
    bool(missing_programs()), reason=f"not installed: {', '.join(missing_programs())}"
)
SPACE = "wakeful"


class Cluster:
    """A control plane, seen by its administrator."""

    def __init__(self, url: str, api: client.ApiClient) -> None:
        self.url = url
        self.batch: Any = client.BatchV1Api(api)
        self.core: Any = client.CoreV1Api(api)
        self.rbac: Any = client.RbacAuthorizationV1Api(api)

    async def job_of(self, run_id: str) -> str | None:
        """Return the name of the newest Job of a run."""
        found = await self.batch.list_namespaced_job(SPACE, label_selector=f"{RUN_ID}={run_id}")
        names = [each.metadata.name for each in found.items]
        return str(max(names)) if names else None

    async def finish(self, name: str, exit_code: int = 0) -> bool:
        """End the pod of a Job, as a node does. False: it has none yet."""
        pods = (await self.core.list_namespaced_pod(SPACE, label_selector=f"job-name={name}")).items
        for pod in pods:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
            ended |= {"startedAt": "2027-01-01T00:00:00Z", "finishedAt": "2027-01-01T00:00:01Z"}
            container = {"name": "work", "image": "busybox", "imageID": "", "ready": False, "restartCount": 0}
            status: dict[str, Any] = {"phase": "Failed" if exit_code else "Succeeded"}
            status |= {"containerStatuses": [{**container, "state": {"terminated": ended}}]}
            await self.core.patch_namespaced_pod_status(pod.metadata.name, SPACE, {"status": status})
        return bool(pods)


@asynccontextmanager
async def api_client(url: str, token: str) -> AsyncIterator[client.ApiClient]:
    api = client.ApiClient(access(url, token))
    try:
        yield api
    finally:
        await api.close()


def access(url: str, token: str) -> client.Configuration:
    configuration = client.Configuration(host=url)
    configuration.api_key = {"BearerToken": f"Bearer {token}"}
    configuration.verify_ssl = False
    return configuration


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with control_plane(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture
async def cluster(url: str) -> AsyncIterator[Cluster]:
    """A namespace in which the executor has the Role of `deploy/`."""
    resources = [*yaml.safe_load_all((ROOT / "deploy/kubernetes/executor.yaml").read_text())]
    role = next(each for each in resources if each["kind"] == "Role")
    binding = next(each for each in resources if each["kind"] == "RoleBinding")
    binding["subjects"] = [{"kind": "User", "name": "executor", "apiGroup": "rbac.authorization.k8s.io"}]
    async with api_client(url, ADMIN) as api:
        cluster = Cluster(url, api)
        for create, body in (
            (cluster.core.create_namespace, {"metadata": {"name": SPACE}}),
            (partial(cluster.rbac.create_namespaced_role, SPACE), role),
            (partial(cluster.rbac.create_namespaced_role_binding, SPACE), binding),
        ):
            with contextlib.suppress(ApiException):  # they exist since the test before
                await create(body)
        yield cluster
        await cluster.core.delete_collection_namespaced_resource_quota(SPACE)
        await cluster.batch.delete_collection_namespaced_job(SPACE, propagation_policy="Background")


def new_executor(ask: ApiClient, cluster: Cluster, own: Manifest) -> KubernetesExecutor:
    worker = Worker(ask.url, ask.key, name="cluster-1", config=WORKER)
    api = KubernetesApi(access(cluster.url, EXECUTOR), SPACE)
    return KubernetesExecutor(worker, api, {"default": own}, name="cluster-1", config=QUICK)


@on_one_store
async def test_a_run_waits_for_a_node_and_ends_as_its_pod(ask: ApiClient, cluster: Cluster):
    own = template()
    own["spec"] |= {"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1}
    own["spec"] |= {"successPolicy": {"rules": [{"succeededCount": 2}]}}
    ids = [await start(ask, name, maxAttempts=1, timeoutMs=600_000) for name in ("done", "failed")]
    async with serving(new_executor(ask, cluster, own)):
        for run_id, exit_code in zip(ids, (0, 3), strict=True):
            await eventually(partial(is_waiting, ask, run_id, "its pod waits for a node: no nodes available"))
            name = str(await eventually(partial(cluster.job_of, run_id)))
            await eventually(partial(cluster.finish, name, exit_code))
        runs = [await over(ask.app, run_id) for run_id in ids]
    assert [(run.state, run.error) for run in runs] == [
        ("succeeded", None),
        ("failed", "exit code 3 (Error)"),
    ]


@on_one_store
async def test_a_suspended_job_starts_when_it_is_resumed(ask: ApiClient, cluster: Cluster):
    own = template()
    own["spec"]["suspend"] = True
    run_id = await start(ask, "digest", maxAttempts=1, timeoutMs=600_000)
    async with serving(new_executor(ask, cluster, own)):
        await eventually(partial(is_waiting, ask, run_id, "its Job is suspended"))
        name = str(await cluster.job_of(run_id))
        assert not await cluster.finish(name)
        await cluster.batch.patch_namespaced_job(name, SPACE, {"spec": {"suspend": False}})
        await eventually(partial(cluster.finish, name))
        run = await over(ask.app, run_id)
    assert run.state == "succeeded"


@on_one_store
async def test_a_run_waits_for_a_quota(ask: ApiClient, cluster: Cluster):
    limit = {"metadata": {"name": "jobs"}, "spec": {"hard": {"count/jobs.batch": "1"}}}
    await cluster.core.create_namespaced_resource_quota(SPACE, limit)

    async def is_counted() -> bool:
        return bool((await cluster.core.read_namespaced_resource_quota("jobs", SPACE)).status.used)

    await eventually(is_counted)
    async with serving(new_executor(ask, cluster, template())):
        first = await start(ask, "first", maxAttempts=1)
        name = str(await eventually(partial(cluster.job_of, first)))
        second = await start(ask, "second", maxAttempts=1)
        run = await in_state(ask.app, second, "retrying")
        assert (run.error or "").startswith("the cluster has no room: exceeded quota: jobs, requested: count")
        await eventually(partial(cluster.finish, name))
        assert (await over(ask.app, first)).state == "succeeded"
        await cluster.core.delete_namespaced_resource_quota("jobs", SPACE)
        name = str(await eventually(partial(cluster.job_of, second)))
        await eventually(partial(cluster.finish, name))
        assert (await over(ask.app, second)).state == "succeeded"


@on_one_store
async def test_a_stopped_run_deletes_its_job_and_pod(ask: ApiClient, cluster: Cluster):
    run_id = await start(ask, "digest")

    async def pods() -> list[Any]:
        found = await cluster.core.list_namespaced_pod(SPACE, label_selector=f"{RUN_ID}={run_id}")
        return [*found.items]

    async with serving(new_executor(ask, cluster, template())):
        await eventually(pods)
        assert (await ask("POST", f"/runs/{run_id}/stop")).status == 200

        async def is_gone() -> bool:
            return await cluster.job_of(run_id) is None and not await pods()

        await eventually(is_gone)


@pytest.mark.parametrize("spec", [{}, {**INDEXED, "maxFailedIndexes": 1, "podFailurePolicy": FAIL_INDEX}])
async def test_the_real_server_accepts_jobs_of_templates_and_of_exported_ones(
    cluster: Cluster, spec: dict[str, Any]
):
    own = job("own", **spec, **({"backoffLimitPerIndex": 1} if spec else {}))
    given = {"_preload_content": False, "dry_run": "All", "field_validation": "Strict"}
    for _ in range(2):
        made = job_manifest(own, replace(RUN, timeout=timedelta(seconds=90)), "cluster-1")
        async with await cluster.batch.create_namespaced_job(SPACE, made, **given) as response:
            assert response.status == 201, await response.text()
        async with await cluster.batch.create_namespaced_job(SPACE, own, **given) as response:
            own = await response.json()


@pytest.mark.parametrize(("change", "field"), INVALID)
async def test_the_stand_in_refuses_what_the_real_server_refuses(
    cluster: Cluster, change: dict[str, Any], field: str
):
    async with StandIn(SPACE) as stand_in, api_client(stand_in.url, stand_in.token) as api:
        standing: Any = client.BatchV1Api(api)
        real, ours = [
            await refusal(batch.create_namespaced_job(SPACE, {**job(), **change}))
            for batch in (cluster.batch, standing)
        ]
    assert (ours["code"], ours["reason"]) == (real["code"], real["reason"])
    assert fields(ours) == fields(real)
    assert any(field in each for each in fields(real))


async def test_the_stand_in_and_the_real_server_agree_on_combinations(cluster: Cluster):
    choices: dict[str, list[Any]] = {
        "completionMode": [None, "Indexed"],
        "completions": [None, 2],
        "backoffLimitPerIndex": [None, 1],
        "maxFailedIndexes": [None, 3],
        "successPolicy": [
            None,
            {"rules": [{"succeededCount": 2}]},
            {"rules": [{"succeededIndexes": "0-1,4"}]},
        ],
        "podFailurePolicy": [None, FAIL_INDEX],
        "podReplacementPolicy": [None, "TerminatingOrFailed"],
    }
    differences = []
    async with StandIn(SPACE) as stand_in, api_client(stand_in.url, stand_in.token) as api:
        standing: Any = client.BatchV1Api(api)
        for values in itertools.product(*choices.values()):
            spec = {name: value for name, value in zip(choices, values, strict=True) if value is not None}
            found = [await answer(batch, job("a", **spec)) for batch in (cluster.batch, standing)]
            if found[0] != found[1]:
                differences.append((spec, *found))
    assert not differences


async def answer(batch: Any, body: dict[str, Any]) -> tuple[int, set[str]]:
    """Return the status of a request, and the fields that it names."""
    request = batch.create_namespaced_job(SPACE, body, dry_run="All", _preload_content=False)
    async with await request as response:
        said = await response.json()
        return response.status, fields(said) if response.status == 422 else set()


async def refusal(call: Any) -> dict[str, Any]:
    with pytest.raises(ApiException) as raised:
        await call
    body: dict[str, Any] = json.loads(raised.value.body or b"")
    return body


def fields(status: dict[str, Any]) -> set[str]:
    return {str(cause["field"]) for cause in status["details"]["causes"]}
