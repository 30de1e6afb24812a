"""A Kubernetes API server for tests, on 127.0.0.1: Jobs, their Pods and their logs.

It keeps the rules of the real API for the requests of the executor: names, labels, types and immutable
fields, versions, lists in pages, watches with bookmarks and compaction, deletion policies, and roles.
`tests/support/kubernetes_controller.py` is its Job controller: a test says what happens to a Pod.

    api = KubernetesApi()
    await api.start()
    ...  # a client creates the Job "a" at api.url, with api.token
    api.start_pod("a")
    api.finish_pod("a", 0, log="done")
    await api.stop()  # an outage: `start` continues with the same objects, at the same port

It does not have: Jobs with more than one Pod, `ttlSecondsAfterFinished`, server-side apply, `follow` of logs.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from aiohttp import web

from tests.support import kubernetes_patches as patches
from tests.support import kubernetes_rules as rules
from tests.support import kubernetes_selectors as selectors
from tests.support import kubernetes_status as status
from tests.support.kubernetes_controller import JobController, generated
from tests.support.kubernetes_http import answer_json, healthy, parsed, server_version
from tests.support.kubernetes_logs import log_of
from tests.support.kubernetes_status import ApiError, Object
from tests.support.kubernetes_store import ObjectStore, Selector, now
from tests.support.kubernetes_watch import Watch

USER = "system:serviceaccount:wakeful:wakeful-executor"
_OBJECT_BYTES, _BODY_BYTES = 1_572_864, 3 * 1024 * 1024
_TRUE = ("true", "True", "1")
_VERBS = {"POST": "create", "GET": "get", "DELETE": "delete", "PATCH": "patch"}
_API = {"jobs": ("batch/v1", "Job"), "pods": ("v1", "Pod")}
_ORPHANED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
    "them or set propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True)
class Request:
    """A request that the server got: its verb (`create`, `watch` …), resource, name and content."""

    verb: str
    resource: str
    name: str
    query: Mapping[str, str]
    body: Any = None


@dataclass
class _Fault:
    """What happens to a later request of a verb instead of its answer."""

    verb: str
    error: ApiError | None
    retry_after: int | None = None


class KubernetesApi(JobController):
    """The server, its objects, and what a test does with them."""

    def __init__(self, namespace: str = "default", permitted: Iterable[Object] | None = None) -> None:
        self.objects = ObjectStore()
        super().__init__(self.objects, namespace)
        self.namespace = namespace
        self.token = f"token-{uuid4().hex}"
        #: the rules of the token's Role, as they are written in a manifest; None: everything is permitted
        self.permitted = None if permitted is None else list(permitted)
        #: how many Jobs a quota permits, finished ones included; None: there is no quota
        self.quota: int | None = None
        #: all requests for resources, also refused ones
        self.requests: list[Request] = []
        #: a compacted version ends a watch with an event (as a cluster does), or refuses it with a status
        self.gone_as_status = False
        #: the length of a second of `timeoutSeconds`; less makes watches end sooner
        self.second = 1.0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._faults: list[_Fault] = []
        self._watches: list[tuple[web.Request, Watch]] = []
        self._runner: web.AppRunner | None = None

    # --- what a test says -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Accept connections, with the objects of before."""
        app = web.Application(client_max_size=2 * _BODY_BYTES)
        for path in ("/readyz", "/livez", "/healthz"):
            app.router.add_get(path, healthy)
        for path in ("/version", "/version/"):
            app.router.add_get(path, server_version)
        for prefix, resource in (("/apis/batch/v1", "jobs"), ("/api/v1", "pods")):
            path = f"{prefix}/namespaces/{{namespace}}/{{resource:{resource}}}"
            for each in (path, f"{path}/{{name}}", f"{path}/{{name}}/{{sub:log}}"):
                app.router.add_route("*", each, self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def stop(self) -> None:
        """Refuse connections, and abort those that are open."""
        runner, self._runner = self._runner, None
        self.drop_watches()
        if runner is not None:
            await runner.cleanup()

    async def restart(self) -> None:
        """Stop, and start again."""
        await self.stop()
        await self.start()

    async def __aenter__(self) -> KubernetesApi:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def watches(self) -> int:
        """Return how many watches are open."""
        return len(self._watches)

    def drop_watches(self) -> None:
        """Abort the connections of all watches."""
        for request, _ in self._watches:
            if request.transport is not None:
                request.transport.abort()

    def compact(self) -> None:
        """Forget old versions: watches and lists cannot continue from them."""
        self.objects.compact()

    def bookmark(self) -> None:
        """Send a bookmark to the watches that accept it."""
        for _, watch in self._watches:
            watch.wanted.set()

    def refuse_next(
        self, verb: str, code: int, reason: str, message: str = "refused", retry_after: int | None = None
    ) -> None:
        """Answer the next request of a verb with an error, such as 429 `TooManyRequests`, or 500."""
        self._faults.append(_Fault(verb, ApiError(code, reason, message), retry_after))

    def lose_next_answer(self, verb: str) -> None:
        """Handle the next request of a verb, and abort its connection instead of an answer."""
        self._faults.append(_Fault(verb, None))

    def jobs(self) -> list[Object]:
        """Return all Jobs."""
        return self.objects.all("jobs", self.namespace)

    def pods(self) -> list[Object]:
        """Return all Pods."""
        return self.objects.all("pods", self.namespace)

    def verbs(self) -> list[str]:
        """Return the requests as `verb resource`, in their order."""
        return [f"{each.verb} {each.resource}" for each in self.requests]

    # --- requests ---------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path, query = request.match_info, request.query
        name, resource = path.get("name", ""), path["resource"]
        verb = _VERBS.get(request.method, request.method.lower())
        if not name and verb == "get":
            verb = "watch" if query.get("watch") in _TRUE else "list"
        if not name and verb == "delete":
            verb = "deletecollection"
        if "sub" in path:
            resource = f"{resource}/{path['sub']}"
        try:
            text = await request.read()
            if len(text) > _BODY_BYTES:
                raise ApiError(
                    413, "RequestEntityTooLarge", f"Request entity too large: limit is {_BODY_BYTES}"
                )
            body = parsed(text)
            self.requests.append(Request(verb, resource, name, dict(query), body))
            self._authorize(request, verb, resource, name)
            fault = next((each for each in self._faults if each.verb == verb), None)
            if fault is not None:
                self._faults.remove(fault)
            if fault is not None and fault.error is not None:
                return answer_json(fault.error.body, fault.error.code, retry_after=fault.retry_after)
            answer = await self._answer(request, verb, resource, name, body)
        except ApiError as error:
            return answer_json(error.body, error.code)
        if fault is not None and request.transport is not None:
            request.transport.abort()
        return answer

    def _authorize(self, request: web.Request, verb: str, resource: str, name: str) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token != self.token:
            raise status.unauthorized()
        if self.permitted is None:
            return
        namespace, group = request.match_info["namespace"], "batch" if resource == "jobs" else ""
        wanted = (("apiGroups", group), ("resources", resource), ("verbs", verb))
        for rule in self.permitted if namespace == self.namespace else ():
            named = "resourceNames" not in rule or name in rule["resourceNames"]
            if named and all({value, "*"} & set(rule[field]) for field, value in wanted):
                return
        raise status.forbidden(USER, verb, resource, namespace, name)

    async def _answer(
        self, request: web.Request, verb: str, resource: str, name: str, body: Any
    ) -> web.StreamResponse:
        namespace = request.match_info["namespace"]
        if verb == "create" and namespace != self.namespace:
            raise status.not_found("namespaces", namespace)
        match verb, resource:
            case "list", ("jobs" | "pods"):
                return self._list(request, resource)
            case "watch", ("jobs" | "pods"):
                return await self._watch(request, resource)
            case "get", ("jobs" | "pods"):
                return answer_json(self._existing(resource, namespace, name))
            case "create", "jobs":
                return self._create(request, body)
            case "delete", "jobs":
                return self._delete(request, name, body)
            case "patch", "jobs":
                return self._patch(request, name, body)
            case "get", "pods/log":
                pod = self._existing("pods", namespace, name)
                written = log_of(pod, self.logs.get(name, b""), request.query)
                return web.Response(body=written, content_type="text/plain")
        raise ApiError(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
        )

    def _existing(self, resource: str, namespace: str, name: str) -> Object:
        found = self.objects.get((resource, namespace, name))
        if found is None:
            raise status.not_found(resource, name)
        return found

    # --- writes -----------------------------------------------------------------------------------------

    def _create(self, request: web.Request, body: Any) -> web.Response:
        job, warnings = rules.decoded(body, request.query.get("fieldValidation") == "Strict")
        metadata = job.setdefault("metadata", {})
        if metadata.get("namespace", self.namespace) != self.namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if metadata.get("resourceVersion"):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = generated(metadata["generateName"])
        if not metadata.get("name"):
            required = "Required value: name or generateName is required"
            raise status.invalid("jobs", "", [status.Cause("metadata.name", "FieldValueRequired", required)])
        key = ("jobs", self.namespace, metadata["name"])
        uid = str(uuid4())
        metadata.update(namespace=self.namespace, uid=uid, creationTimestamp=now(), generation=1)
        job = {**rules.new_job(job, uid), "status": {}}
        if self.quota is not None and len(self.jobs()) >= self.quota:
            raise status.exceeded_quota("jobs", key[2], self.quota)
        present = self.objects.get(key)
        if present is not None:
            raise status.already_exists("jobs", key[2], "deletionTimestamp" in present["metadata"])
        if len(json.dumps(job)) > _OBJECT_BYTES:
            raise ApiError(500, "InternalError", "etcdserver: request is too large")
        if not request.query.get("dryRun"):
            job = self.objects.put(key, job)
            self.job_changed(key[2])
        return answer_json(job, 201, warnings)

    def _delete(self, request: web.Request, name: str, body: Any) -> web.Response:
        key = ("jobs", request.match_info["namespace"], name)
        job = self._existing(*key)
        options = {**(body or {}), **request.query}
        _check_preconditions(job, options.get("preconditions") or {})
        asked = options.get("propagationPolicy")
        if asked not in (None, "Background", "Foreground", "Orphan"):
            raise ApiError(
                422,
                "Invalid",
                f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: "{asked}"',
            )
        # batch/v1 keeps the Pods by default.
        policy = asked or "Orphan"
        warnings = [] if asked else [_ORPHANED]
        uid = job["metadata"]["uid"]
        if job["metadata"].get("finalizers") or policy != "Background":
            job["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": 0}
            finalizers = list(job["metadata"].get("finalizers", ()))
            own = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy)
            job["metadata"]["finalizers"] = finalizers + ([own] if own else [])
            answer = self.objects.put(key, job)
            self.job_deleted(name, uid, policy)
            job["metadata"]["finalizers"] = finalizers
            self._without_finalizers(name, job)
            return answer_json(answer, 200, warnings)
        self.objects.remove(key)
        self.job_deleted(name, uid, policy)
        return answer_json(status.deleted("jobs", name, uid), 200, warnings)

    def _without_finalizers(self, name: str, job: Object) -> Object:
        """Store a Job; one that is being deleted and has no finalizer is removed."""
        if not job["metadata"].get("finalizers"):
            job["metadata"].pop("finalizers", None)
            if "deletionTimestamp" in job["metadata"]:
                self.objects.remove(("jobs", self.namespace, name))
                return job
        return self.objects.put(("jobs", self.namespace, name), job)

    def _patch(self, request: web.Request, name: str, body: Any) -> web.Response:
        old = self._existing("jobs", request.match_info["namespace"], name)
        asked = patches.applied(old, body, request.content_type)
        version = old["metadata"]["resourceVersion"]
        if asked["metadata"].get("resourceVersion", version) != version:
            raise status.conflict("jobs", name, patches.MODIFIED)
        new, warnings = rules.decoded(asked, request.query.get("fieldValidation") == "Strict")
        job = self._without_finalizers(name, rules.changed_job(old, new))
        if self.objects.get(("jobs", self.namespace, name)) is not None:
            self.job_changed(name)
        return answer_json(job, 200, warnings)

    # --- lists and watches ------------------------------------------------------------------------------

    def _list(self, request: web.Request, resource: str) -> web.Response:
        query, (version, kind) = request.query, _API[resource]
        chosen = _chosen(query, resource)
        page = self.objects.page(
            resource,
            request.match_info["namespace"],
            chosen,
            _number(query, "limit"),
            query.get("continue", ""),
        )
        metadata: Object = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                metadata["remainingItemCount"] = page.remaining
        # Items of a list have no kind.
        items = [
            {key: value for key, value in each.items() if key not in ("kind", "apiVersion")}
            for each in page.items
        ]
        found = {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": items}
        return answer_json(found)

    async def _watch(self, request: web.Request, resource: str) -> web.StreamResponse:
        query = request.query
        watch = Watch(
            resource,
            request.match_info["namespace"],
            _chosen(query, resource),
            _number(query, "resourceVersion"),
            self.second * (_number(query, "timeoutSeconds") or 1800),
            query.get("allowWatchBookmarks") in _TRUE,
        )
        if self.gone_as_status and watch.version:
            self.objects.changes_after(watch.version, resource, watch.namespace)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})

        async def send(event: Object) -> None:
            await response.write(json.dumps(event).encode() + b"\n")

        entry = (request, watch)
        self._watches.append(entry)
        try:
            await response.prepare(request)
            await watch.run(self.objects, send)
            await response.write_eof()
        except ConnectionError:
            pass  # the client has closed the watch
        finally:
            self._watches = [each for each in self._watches if each is not entry]
        return response


def _chosen(query: Mapping[str, str], resource: str) -> Selector:
    labels = selectors.label_selector(query.get("labelSelector", ""))
    fields = selectors.field_selector(query.get("fieldSelector", ""), resource)
    return lambda item: labels(item) and fields(item)


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise status.bad_request(f'{name}: Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text)


def _check_preconditions(job: Object, preconditions: Object) -> None:
    for field in ("uid", "resourceVersion"):
        wanted, found = preconditions.get(field), job["metadata"][field]
        if wanted is not None and wanted != found:
            shown = "UID" if field == "uid" else "ResourceVersion"
            why = f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {found}"
            raise status.conflict("jobs", job["metadata"]["name"], why)
