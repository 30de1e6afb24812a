"""The Kubernetes API server of the tests keeps the rules of the real one, seen through the real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes_asyncio import client
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.watch import Watch

from tests.support.kubernetes_api import KubernetesApi
from tests.support.kubernetes_status import Object
from tests.support.kubernetes_store import ObjectStore
from tests.support.kubernetes_watch import Watch as ServedWatch
from tests.support.waiting import eventually

ROLE = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
]


def job(name: str = "a", **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "env": [{"name": "JOB_PAYLOAD", "value": "{}"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"app": "test", "job": name}},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            **fields,
        },
    }


INDEXED: dict[str, Any] = {"completionMode": "Indexed", "completions": 2}
EXPORTED = {"controller-uid": "1", "batch.kubernetes.io/job-name": "another"}
FAIL_INDEX = {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]}


class Clients:
    """The two APIs of the real client, with the token of the server."""

    def __init__(self, server: KubernetesApi, token: str | None = None) -> None:
        configuration = client.Configuration(host=server.url)
        configuration.api_key = {"BearerToken": f"Bearer {token or server.token}"}
        self.client = client.ApiClient(configuration)
        # The stubs accept only models; the client itself also sends plain objects, as the executor does.
        self.batch: Any = client.BatchV1Api(self.client)
        self.core: Any = client.CoreV1Api(self.client)

    async def create(self, *names: str, **fields: Any) -> None:
        for name in names:
            await self.batch.create_namespaced_job("default", job(name, **fields))


@pytest.fixture
async def api() -> AsyncIterator[KubernetesApi]:
    async with KubernetesApi() as server:
        yield server


@pytest.fixture
async def kube(api: KubernetesApi) -> AsyncIterator[Clients]:
    clients = Clients(api)
    try:
        yield clients
    finally:
        await clients.client.close()


async def refusal(call: Any) -> dict[str, Any]:
    """Return the status of a request that fails."""
    with pytest.raises(ApiException) as raised:
        await call
    body = json.loads(raised.value.body or b"")
    assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", raised.value.status)
    return {key: body[key] for key in ("code", "reason", "message")}


# --- objects ----------------------------------------------------------------------------------------------


async def test_a_job_has_the_fields_that_the_server_sets(kube: Clients):
    made = await kube.batch.create_namespaced_job("default", job())
    assert made.metadata.uid
    assert made.metadata.creation_timestamp.tzinfo is not None
    assert made.status.active is None
    assert made.spec.selector.match_labels == {"batch.kubernetes.io/controller-uid": made.metadata.uid}
    assert made.spec.template.metadata.labels["batch.kubernetes.io/job-name"] == "a"

    read = await kube.batch.read_namespaced_job("a", "default")
    assert (read.metadata.uid, read.status.active, read.status.ready) == (made.metadata.uid, 1, 0)
    assert int(read.metadata.resource_version) > int(made.metadata.resource_version)


async def test_a_name_is_given_once(kube: Clients):
    await kube.create("a")
    assert await refusal(kube.create("a")) == {
        "code": 409,
        "reason": "AlreadyExists",
        "message": 'jobs.batch "a" already exists',
    }
    missing = await refusal(kube.batch.read_namespaced_job("b", "default"))
    assert missing == {"code": 404, "reason": "NotFound", "message": 'jobs.batch "b" not found'}


async def test_a_generated_name_differs_each_time(kube: Clients):
    body = job()
    body["metadata"] = {"generateName": "run-"}
    names = [(await kube.batch.create_namespaced_job("default", body)).metadata.name for _ in range(3)]
    assert len(set(names)) == 3
    assert {(name[:4], len(name)) for name in names} == {("run-", 9)}


#: Changes of a Job that the API refuses, and a field that it names.
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"name": "Not_Valid"}}, "metadata.name"),
    ({"metadata": {}}, "metadata.name"),
    ({"metadata": {"name": "a" * 64}}, "spec.template.labels"),
    ({"metadata": {"name": "a", "labels": {"x": "not valid"}}}, "metadata.labels"),
    ({"metadata": {"name": "a", "labels": {"x": "y" * 64}}}, "metadata.labels"),
    ({"metadata": {"name": "a", "labels": {"/x": "y"}}}, "metadata.labels"),
    ({"metadata": {"name": "a", "annotations": {"x": "y" * 262_144}}}, "metadata.annotations"),
    ({"spec": {"template": {"spec": {"containers": [{"name": "m", "image": "i"}]}}}}, "restartPolicy"),
    ({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}, "spec.template.spec.containers"),
    (
        {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m"}]}}}},
        "spec.template.spec.containers[0].image",
    ),
    ({"spec": {**job()["spec"], "backoffLimit": -1}}, "spec.backoffLimit"),
    ({"spec": {**job()["spec"], "selector": {"matchLabels": {"a": "b"}}}}, "spec.selector"),
    (job(template={**job()["spec"]["template"], "metadata": {"labels": EXPORTED}}), "metadata.labels"),
    (job(successPolicy={"rules": [{"succeededCount": 1}]}), "spec.successPolicy"),
    (job(**INDEXED, successPolicy={"rules": [{"succeededCount": 3}]}), "rules[0].succeededCount"),
    (job(**INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-2"}]}), "succeededIndexes"),
    (job(**INDEXED, successPolicy={"rules": [{}]}), "spec.successPolicy.rules[0]"),
    (job(completionMode="Indexed", parallelism=2), "spec.completions"),
    (job(completionMode="Ordered"), "spec.completionMode"),
    (job(backoffLimitPerIndex=1), "spec.backoffLimitPerIndex"),
    (job(**INDEXED, maxFailedIndexes=1), "spec.backoffLimitPerIndex"),
    (job(podFailurePolicy=FAIL_INDEX), "rules[0].action"),
    (
        job(podFailurePolicy=FAIL_INDEX, podReplacementPolicy="TerminatingOrFailed"),
        "spec.podReplacementPolicy",
    ),
    (job(podReplacementPolicy="Never"), "spec.podReplacementPolicy"),
]


@pytest.mark.parametrize(("change", "field"), INVALID)
async def test_an_invalid_job_is_refused(kube: Clients, api: KubernetesApi, change: Any, field: str):
    found = await refusal(kube.batch.create_namespaced_job("default", {**job(), **change}))
    assert (found["code"], found["reason"]) == (422, "Invalid")
    assert field in found["message"]
    assert api.jobs() == []


async def test_a_value_of_a_wrong_type_is_refused_and_an_unknown_field_only_if_asked(kube: Clients):
    body = job()
    body["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = 5
    found = await refusal(kube.batch.create_namespaced_job("default", body))
    assert (found["code"], found["reason"]) == (400, "BadRequest")
    assert "cannot unmarshal number" in found["message"]

    body = job(unknown=1)
    found = await refusal(kube.batch.create_namespaced_job("default", body, field_validation="Strict"))
    assert found["message"] == 'strict decoding error: unknown field "spec.unknown"'
    _, _, headers = await kube.batch.create_namespaced_job_with_http_info("default", body)
    assert headers["Warning"] == r'299 - "unknown field \"spec.unknown\""'


async def test_a_namespace_must_exist(kube: Clients):
    found = await refusal(kube.batch.create_namespaced_job("other", job()))
    assert found == {"code": 404, "reason": "NotFound", "message": 'namespaces "other" not found'}


async def test_a_patch_changes_what_is_not_immutable(kube: Clients):
    await kube.create("a")
    patched = await kube.batch.patch_namespaced_job("a", "default", {"metadata": {"labels": {"seen": "yes"}}})
    assert patched.metadata.labels == {"app": "test", "job": "a", "seen": "yes"}
    operations = [{"op": "remove", "path": "/metadata/labels/seen"}]
    patched = await kube.batch.patch_namespaced_job("a", "default", operations)
    assert patched.metadata.labels == {"app": "test", "job": "a"}

    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}
    found = await refusal(kube.batch.patch_namespaced_job("a", "default", template))
    assert found["code"] == 422
    assert "spec.template" in found["message"]
    assert "field is immutable" in found["message"]
    for field in ({"completions": 2}, {"completionMode": "Indexed"}, {"podFailurePolicy": FAIL_INDEX}):
        assert (await refusal(kube.batch.patch_namespaced_job("a", "default", {"spec": field})))[
            "code"
        ] == 422
    old = {"metadata": {"resourceVersion": "1", "labels": {"x": "y"}}}
    assert (await refusal(kube.batch.patch_namespaced_job("a", "default", old)))["reason"] == "Conflict"


# --- deletion ---------------------------------------------------------------------------------------------


async def test_a_deleted_job_takes_its_pod_along_only_if_asked(kube: Clients, api: KubernetesApi):
    await kube.create("a", "b")
    await kube.batch.delete_namespaced_job("a", "default", propagation_policy="Background")
    assert [pod["metadata"]["labels"]["job-name"] for pod in api.pods()] == ["b"]
    _, _, headers = await kube.batch.delete_namespaced_job_with_http_info("b", "default")
    assert "child pods are preserved by default" in headers["Warning"]
    assert api.jobs() == []
    (orphan,) = api.pods()
    assert "ownerReferences" not in orphan["metadata"]
    assert (await refusal(kube.batch.delete_namespaced_job("a", "default")))["code"] == 404


async def test_a_deletion_can_name_the_object_that_it_means(kube: Clients, api: KubernetesApi):
    await kube.create("a")
    options = client.V1DeleteOptions(
        propagation_policy="Background", preconditions=client.V1Preconditions(uid="another")
    )
    found = await refusal(kube.batch.delete_namespaced_job("a", "default", body=options))
    assert (found["code"], found["reason"]) == (409, "Conflict")
    assert len(api.jobs()) == 1


async def test_a_job_with_a_finalizer_stays_until_it_is_removed(kube: Clients, api: KubernetesApi):
    body = job()
    body["metadata"]["finalizers"] = ["example.com/keep"]
    await kube.batch.create_namespaced_job("default", body)
    await kube.batch.delete_namespaced_job(
        "a", "default", propagation_policy="Background", _preload_content=False
    )
    assert api.job("a")["metadata"]["deletionTimestamp"]
    assert "object is being deleted" in (await refusal(kube.create("a")))["message"]
    operations = [{"op": "remove", "path": "/metadata/finalizers"}]
    await kube.batch.patch_namespaced_job("a", "default", operations)
    assert api.jobs() == []


# --- lists and watches ------------------------------------------------------------------------------------


async def test_a_list_is_filtered_by_labels_and_fields(kube: Clients):
    await kube.create("a", "b", "c")
    for selector, names in {
        "app=test,job!=a": ["b", "c"],
        "job in (a, c)": ["a", "c"],
        "job notin (a),!missing": ["b", "c"],
        "missing": [],
        "": ["a", "b", "c"],
    }.items():
        found = await kube.batch.list_namespaced_job("default", label_selector=selector)
        assert [each.metadata.name for each in found.items] == names, selector
    found = await kube.batch.list_namespaced_job("default", field_selector="metadata.name=b")
    assert [each.metadata.name for each in found.items] == ["b"]
    wrong = await refusal(kube.batch.list_namespaced_job("default", label_selector="job in a"))
    assert wrong["code"] == 400


async def test_the_pages_of_a_list_show_one_version(kube: Clients, api: KubernetesApi):
    await kube.create("a", "b", "c")
    first = await kube.batch.list_namespaced_job("default", limit=2)
    assert [each.metadata.name for each in first.items] == ["a", "b"]
    assert first.metadata.remaining_item_count == 1
    await kube.create("d")
    token = first.metadata._continue
    second = await kube.batch.list_namespaced_job("default", limit=2, _continue=token)
    assert [each.metadata.name for each in second.items] == ["c"]
    assert second.metadata.resource_version == first.metadata.resource_version

    api.compact()
    with pytest.raises(ApiException) as raised:
        await kube.batch.list_namespaced_job("default", limit=2, _continue=token)
    body = json.loads(raised.value.body or b"")
    assert (raised.value.status, body["reason"]) == (410, "Expired")
    rest = await kube.batch.list_namespaced_job("default", _continue=body["metadata"]["continue"])
    assert [each.metadata.name for each in rest.items] == ["c", "d"]


async def test_a_watch_shows_each_change_after_its_version(kube: Clients, api: KubernetesApi):
    await kube.create("before")
    listed = await kube.batch.list_namespaced_job("default")
    seen = []
    async with Watch().stream(
        kube.batch.list_namespaced_job,
        "default",
        label_selector="job=a",
        resource_version=listed.metadata.resource_version,
        timeout_seconds=600,
    ) as events:
        await kube.create("a", "other")
        api.start_pod("a")
        api.finish_pod("a", 0)
        await kube.batch.delete_namespaced_job("a", "default", propagation_policy="Background")
        async for event in events:
            conditions = event["object"].status.conditions or []
            seen.append((event["type"], [each.type for each in conditions]))
            if event["type"] == "DELETED":
                break
    done = ["SuccessCriteriaMet", "Complete"]
    assert seen == [
        ("ADDED", []),
        ("MODIFIED", []),
        ("MODIFIED", []),
        ("MODIFIED", done[:1]),
        ("MODIFIED", done),
        ("DELETED", done),
    ]


async def test_a_watch_without_a_version_starts_with_the_present_objects(kube: Clients):
    await kube.create("a", "b")
    async with Watch().stream(kube.batch.list_namespaced_job, "default", timeout_seconds=600) as events:
        first = [await anext(events) for _ in range(2)]
    assert [(each["type"], each["object"].metadata.name) for each in first] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]


async def test_an_object_that_leaves_a_selector_is_shown_as_deleted(kube: Clients):
    await kube.create("a")
    async with Watch().stream(
        kube.batch.list_namespaced_job, "default", label_selector="job=a", timeout_seconds=600
    ) as events:
        assert (await anext(events))["type"] == "ADDED"
        await kube.batch.patch_namespaced_job("a", "default", {"metadata": {"labels": {"job": "b"}}})
        assert (await anext(events))["type"] == "DELETED"


async def test_bookmarks_move_the_version_of_a_watch(kube: Clients, api: KubernetesApi):
    listed = await kube.batch.list_namespaced_job("default")
    watch: Any = Watch()
    async with watch.stream(
        kube.batch.list_namespaced_job,
        "default",
        label_selector="job=a",
        resource_version=listed.metadata.resource_version,
        allow_watch_bookmarks=True,
        timeout_seconds=600,
    ) as events:
        first = asyncio.create_task(anext(events))
        await eventually(lambda: api.watches == 1)
        await kube.create("other")
        api.bookmark()
        assert (await first)["type"] == "BOOKMARK"
    assert watch.resource_version == str(api.objects.version)
    await eventually(lambda: api.watches == 0)


async def test_a_watch_ends_after_its_time_with_a_bookmark(kube: Clients, api: KubernetesApi):
    api.second = 0.01
    async with Watch().stream(
        kube.batch.list_namespaced_job, "default", allow_watch_bookmarks=True, timeout_seconds=1
    ) as events:
        assert [each["type"] async for each in events] == ["BOOKMARK"]


async def test_a_watch_from_a_compacted_version_has_to_start_again(kube: Clients, api: KubernetesApi):
    listed = await kube.batch.list_namespaced_job("default")
    await kube.create("a")
    api.compact()
    for as_status in (False, True):
        api.gone_as_status = as_status
        events = Watch().stream(
            kube.batch.list_namespaced_job,
            "default",
            resource_version=listed.metadata.resource_version,
            timeout_seconds=600,
        )
        with pytest.raises(ApiException) as raised:
            await anext(events)  # it closes itself after an error
        assert raised.value.status == 410


# --- Pods -------------------------------------------------------------------------------------------------


async def pod_of(kube: Clients, name: str) -> Any:
    (pod,) = (await kube.core.list_namespaced_pod("default", label_selector=f"job-name={name}")).items
    return pod


async def log_of(kube: Clients, name: str, **options: Any) -> str:
    pod = await pod_of(kube, name)
    return str(await kube.core.read_namespaced_pod_log(pod.metadata.name, "default", **options))


async def test_a_log_can_be_read_when_the_container_has_started(kube: Clients, api: KubernetesApi):
    await kube.create("a")
    pod = (await pod_of(kube, "a")).metadata.name
    assert (await refusal(kube.core.read_namespaced_pod_log(pod, "default")))["message"] == (
        f'container "main" in pod "{pod}" is waiting to start: ContainerCreating'
    )
    api.start_pod("a", log="one\n")
    assert await log_of(kube, "a") == "one\n"
    api.finish_pod("a", 0, log="two\nthree\n")
    assert await log_of(kube, "a") == "one\ntwo\nthree\n"
    assert await log_of(kube, "a", tail_lines=2) == "two\nthree\n"
    assert await log_of(kube, "a", tail_lines=2, limit_bytes=5) == "two\nt"
    assert (await refusal(log_of(kube, "a", limit_bytes=0)))["code"] == 422


async def test_a_pod_shows_why_its_container_does_not_start(kube: Clients, api: KubernetesApi):
    await kube.create("a", "b")
    api.waiting("a", "ErrImagePull")
    (container,) = (await pod_of(kube, "a")).status.container_statuses
    assert (container.state.waiting.reason, container.ready) == ("ErrImagePull", False)
    api.unschedulable("b")
    (condition,) = (await pod_of(kube, "b")).status.conditions
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")


async def test_a_failure_shows_its_exit_code_and_reason(kube: Clients, api: KubernetesApi):
    await kube.create("a")
    api.start_pod("a")
    api.finish_pod("a", 137, log="too much", reason="OOMKilled")
    (container,) = (await pod_of(kube, "a")).status.container_statuses
    assert (container.state.terminated.exit_code, container.state.terminated.reason) == (137, "OOMKilled")
    state = (await kube.batch.read_namespaced_job("a", "default")).status
    assert (state.failed, state.active, state.completion_time) == (1, None, None)
    assert [(each.type, each.reason) for each in state.conditions] == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]


async def test_a_job_with_a_backoff_limit_gets_another_pod(kube: Clients, api: KubernetesApi):
    await kube.create("a", backoffLimit=1)
    first = api.pod("a")["metadata"]["name"]
    api.finish_pod("a", 1)
    assert api.pod("a")["metadata"]["name"] != first
    api.start_pod("a")
    api.finish_pod("a", 0)
    state = (await kube.batch.read_namespaced_job("a", "default")).status
    assert (state.failed, state.succeeded) == (1, 1)
    assert len(api.pods()) == 2


async def test_a_deadline_removes_the_pod(kube: Clients, api: KubernetesApi):
    await kube.create("a", activeDeadlineSeconds=5)
    api.start_pod("a")
    api.exceed_deadline("a")
    state = (await kube.batch.read_namespaced_job("a", "default")).status
    assert [each.reason for each in state.conditions] == ["DeadlineExceeded"] * 2
    assert api.pods() == []


# --- access and outages -----------------------------------------------------------------------------------


async def test_a_wrong_token_and_a_verb_outside_of_the_role_are_refused():
    async with KubernetesApi(permitted=ROLE) as server:
        wrong, kube = Clients(server, "wrong"), Clients(server)
        try:
            assert (await refusal(wrong.create("a")))["code"] == 401
            await kube.create("a")
            found = await refusal(kube.batch.patch_namespaced_job("a", "default", {}))
            assert found["message"] == (
                'jobs.batch "a" is forbidden: User "system:serviceaccount:wakeful:wakeful-executor" '
                'cannot patch resource "jobs" in API group "batch" in the namespace "default"'
            )
            assert (await refusal(kube.batch.list_namespaced_job("other")))["code"] == 403
            assert (await refusal(log_of(kube, "a")))["reason"] == "Forbidden"
            assert (await client.VersionApi(wrong.client).get_code()).major == "1"
        finally:
            await wrong.client.close()
            await kube.client.close()


async def test_objects_survive_an_outage(kube: Clients, api: KubernetesApi):
    await kube.create("a")
    async with Watch().stream(kube.batch.list_namespaced_job, "default", timeout_seconds=600) as events:
        await anext(events)
        await eventually(lambda: api.watches == 1)
        await api.stop()
        with pytest.raises((OSError, StopAsyncIteration, aiohttp.ClientError)):
            await anext(events)
    with pytest.raises(OSError, match="Cannot connect"):
        await kube.batch.read_namespaced_job("a", "default")
    await api.start()
    assert (await kube.batch.read_namespaced_job("a", "default")).metadata.name == "a"
    await eventually(lambda: api.watches == 0)


async def test_a_request_can_be_refused_or_its_answer_lost(kube: Clients, api: KubernetesApi):
    api.refuse_next("create", 429, "TooManyRequests", retry_after=1)
    with pytest.raises(ApiException) as raised:
        await kube.create("a")
    assert (raised.value.status, dict(raised.value.headers or {})["Retry-After"]) == (429, "1")
    assert api.jobs() == []
    api.lose_next_answer("create")
    with pytest.raises(aiohttp.ClientError):
        await kube.create("a")
    assert (await refusal(kube.create("a")))["reason"] == "AlreadyExists"
    assert api.verbs() == ["create jobs"] * 3


@pytest.mark.parametrize("steps", range(6))
async def test_a_watch_shows_a_write_at_any_moment(steps: int):
    store, sent = ObjectStore(), list[Object]()

    async def send(event: Object) -> None:
        sent.append(event)

    watch = ServedWatch("jobs", "default", lambda _: True, store.version, 3_600, bookmarks=False)
    task = asyncio.create_task(watch.run(store, send))
    for _ in range(steps):
        await asyncio.sleep(0)
    store.put(("jobs", "default", "a"), job())
    await eventually(lambda: sent)
    task.cancel()
    await asyncio.wait({task})
