"""The requests to the API server of Kubernetes. The only module that imports `kubernetes_asyncio`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp

from wakeful.errors import InvalidArgument, Unavailable
from wakeful.launch.port import MAX_OUTPUT
from wakeful.remote.kubernetes.states import Manifest
from wakeful.values.package import install_command

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

#: Seconds until a request fails; seconds after which the API server ends a watch, and it is renewed.
_TIMEOUT_S: Final = 20
_WATCH_S: Final = 60
#: The longest delay that a server may ask for, in seconds.
_MAX_DELAY_S: Final = 60
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubernetesError(Unavailable):
    """A request to the API server failed. `status` is that of HTTP; 0: it did not respond."""

    def __init__(self, status: int, reason: str, message: str, retry_after_s: int = 0) -> None:
        answer = f"Kubernetes responded {status} {reason}".rstrip() if status else "Kubernetes is unreachable"
        super().__init__(f"{answer}: {message}" if message else answer)
        self.status = status
        self.reason = reason
        #: the delay that the server asks for
        self.retry_after_s = retry_after_s

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: no response, an overload or a fault of the server.

        Or credentials that are not accepted now: those of a cluster are renewed, and Jobs go on meanwhile. Or
        a conflict with another request: requests for Jobs that count towards one quota.
        """
        conflict = self.status == 409 and self.reason == "Conflict"
        return self.status in (0, 401, 408, 429) or self.status >= 500 or conflict

    @property
    def exceeded_quota(self) -> str | None:
        """Which quota is used up, so that there is room when other work has ended; None: it is not that."""
        _, found, quota = self.message.partition("exceeded quota: ")
        return quota if found and self.status == 403 else None


class Access(NamedTuple):
    """How the API server is reached, and the namespace that this access implies."""

    configuration: Configuration
    namespace: str


async def load_access(kubeconfig: str | None = None, context: str | None = None) -> Access:
    """Return the access to the cluster: that of the pod, or that of a kubeconfig file."""
    try:
        from kubernetes_asyncio import client, config
    except ImportError as error:
        raise InvalidArgument(
            f"this needs kubernetes_asyncio; install it with: {install_command('kubernetes')}"
        ) from error
    configuration = client.Configuration()
    try:
        if kubeconfig is None and context is None:
            try:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except config.ConfigException:  # not in a pod
                pass
            else:
                return Access(configuration, _namespace_of_pod())
        loader = await config.load_kube_config(
            config_file=kubeconfig, context=context, client_configuration=configuration
        )
    except (config.ConfigException, OSError) as error:
        raise InvalidArgument(
            f"there is no access to a cluster: {error}; run this in a pod, or give --kubeconfig"
        ) from error
    _renew_credentials(loader, configuration)
    settings: Any = loader.current_context
    return Access(configuration, str(settings["context"].get("namespace") or "default"))


def _renew_credentials(loader: Any, configuration: Configuration) -> None:
    """Read the token of a kubeconfig again, from its file or program, when it has expired or was refused."""
    turns = asyncio.Lock()

    async def renew(used: Configuration) -> None:
        try:
            async with turns:
                if not used.api_key["BearerToken"]:  # refused: it is not valid until it expires
                    vars(loader).pop("exec_plugin_expiry", None)
                elif not hasattr(loader, "exec_plugin_expiry"):
                    return
                await loader._load_authentication()  # runs the program again only if its token has expired
        except Exception as error:  # of the program, or of the file
            raise KubernetesError(0, "", f"the credentials cannot be renewed: {error}") from error
        used.api_key["BearerToken"] = loader.token

    configuration.refresh_api_key_hook = renew


class KubernetesApi:
    """The Jobs and pods of one namespace."""

    def __init__(self, configuration: Configuration, namespace: str) -> None:
        from kubernetes_asyncio import client

        self._client = client.ApiClient(configuration)
        self._batch = client.BatchV1Api(self._client)
        self._core = client.CoreV1Api(self._client)
        self.namespace = namespace
        self.url = str(configuration.host)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def create_job(self, manifest: Manifest) -> Manifest:
        """Create a Job. KubernetesError with status 409: there is one of this name."""
        return _object(await self._json(self._batch.create_namespaced_job, self.namespace, manifest))

    async def job(self, name: str) -> Manifest:
        """Return a Job."""
        return _object(await self._json(self._batch.read_namespaced_job, name, self.namespace))

    async def delete_job(self, name: str) -> None:
        """Delete a Job and its pods. It may be gone already."""
        try:
            await self._json(
                self._batch.delete_namespaced_job, name, self.namespace, propagation_policy="Background"
            )
        except KubernetesError as error:
            if error.status != 404:
                raise

    async def jobs(self, selector: str) -> tuple[list[Manifest], str]:
        """Return the Jobs with these labels, and the version from which a watch continues."""
        found = await self._json(self._batch.list_namespaced_job, self.namespace, label_selector=selector)
        return _items(found), str(found["metadata"]["resourceVersion"])

    async def watch_jobs(self, selector: str, version: str) -> AsyncGenerator[tuple[str, Manifest], None]:
        """Yield changes of Jobs after a version, each as its type and the Job, until the watch ends.

        KubernetesError with status 410: that version is too old; list the Jobs again.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S, sock_read=_WATCH_S + _TIMEOUT_S)
        request = self._open(
            self._batch.list_namespaced_job, self.namespace, label_selector=selector, watch=True,
            resource_version=version, allow_watch_bookmarks=True, timeout_seconds=_WATCH_S,
            _request_timeout=timeout,
        )  # fmt: skip
        async with request as response:
            async for line in _lines(response):
                event = _parse_manifest(line)
                if event.get("type") == "ERROR":
                    raise _refusal(int(event["object"].get("code") or 500), event["object"])
                yield event["type"], event["object"]

    async def pods(self, job: str) -> list[Manifest]:
        """Return the pods of a Job."""
        found = await self._json(
            self._core.list_namespaced_pod, self.namespace, label_selector=f"job-name={job}"
        )
        return _items(found)

    async def log(self, pod: str, container: str) -> bytes:
        """Return the last part of the log of a container."""
        request = self._open(
            self._core.read_namespaced_pod_log, pod, self.namespace, container=container, tail_lines=10_000
        )
        tail = b""
        async with request as response:
            async for data in response.content.iter_any():
                tail = (tail + data)[-MAX_OUTPUT - 1 :]
        return tail

    def _drop_token(self, refused: aiohttp.ClientResponse) -> None:
        """Drop a token that was refused, so that the next request reads it again, if it is still in use."""
        keys = self._client.configuration.api_key
        sent = refused.request_info.headers.get("Authorization")
        if sent and sent == keys.get("BearerToken"):
            keys["BearerToken"] = ""

    async def _json(self, call: Callable[..., Awaitable[Any]], *args: object, **given: object) -> Manifest:
        async with self._open(call, *args, **given) as response:
            return _parse_manifest(await response.read())

    @asynccontextmanager
    async def _open(
        self, call: Callable[..., Awaitable[Any]], *args: object, **given: object
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and yield its response if it succeeded."""
        given.setdefault("_request_timeout", _TIMEOUT_S)
        try:
            response: aiohttp.ClientResponse = await call(*args, _preload_content=False, **given)
            async with response:
                if response.status == 401:
                    self._drop_token(response)
                if response.status >= 300:
                    delay_s = _seconds(response.headers.get("Retry-After"))
                    raise _refusal(response.status, _status(await response.read()), delay_s)
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise KubernetesError(0, "", str(error) or type(error).__name__) from error


def _namespace_of_pod() -> str:
    try:
        return (_SERVICE_ACCOUNT / "namespace").read_text().strip() or "default"
    except OSError:
        return "default"


def _refusal(status: int, content: Manifest, retry_after_s: int = 0) -> KubernetesError:
    reason, message = str(content.get("reason") or ""), str(content.get("message") or "")
    return KubernetesError(status, reason, message, retry_after_s)


def _seconds(text: str | None) -> int:
    """Return the delay of a `Retry-After` header, at most a minute; 0 if it has none in seconds."""
    return min(int(text[:9]), _MAX_DELAY_S) if text and text.isascii() and text.isdigit() else 0


def _load_object(content: bytes) -> Manifest | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _parse_manifest(content: bytes) -> Manifest:
    found = _load_object(content)
    if found is None:
        raise KubernetesError(502, "", f"the response is not JSON: {content[:100].decode(errors='replace')}")
    return found


def _object(found: object) -> Manifest:
    """Return a Job or pod. KubernetesError, which is transient, for something else: a proxy may answer."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if (
        not isinstance(found, dict)
        or not isinstance(metadata, dict)
        or not isinstance(metadata.get("name"), str)
    ):
        raise KubernetesError(502, "", "the response is not an object of Kubernetes")
    return found


def _items(found: Manifest) -> list[Manifest]:
    """Return the objects of a list."""
    items = found.get("items", "")
    if not isinstance(items, list | None):
        raise KubernetesError(502, "", "the response is not a list of Kubernetes")
    return [_object(item) for item in items or ()]


def _status(content: bytes) -> Manifest:
    return _load_object(content) or {"message": content[:200].decode(errors="replace")}


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a response, of any length."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
