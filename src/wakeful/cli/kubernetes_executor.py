"""Runs `wakeful executor kubernetes`: its access to the cluster, its signals and its health endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wakeful.app.process_protection import protect_process
from wakeful.cli.health_endpoint import serving_health
from wakeful.client.rest import RestClient
from wakeful.remote.kubernetes.api import KubernetesApi, load_access
from wakeful.remote.kubernetes.executor import ExecutorConfig, KubernetesExecutor
from wakeful.remote.kubernetes.templates import Manifest, check_executor_name
from wakeful.remote.worker import Worker, WorkerConfig


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """The options of the command."""

    name: str
    templates: Mapping[str, Manifest]
    namespace: str | None
    kubeconfig: str | None
    context: str | None
    concurrency: int
    agents: tuple[str, ...]
    lanes: tuple[str, ...]
    start_grace_s: float
    #: the address of the health endpoint
    health: tuple[str, int] | None


async def execute_on_kubernetes(
    client: RestClient, options: ExecutorOptions, started: Callable[[str, str | None], None]
) -> None:
    """Execute runs until SIGINT or SIGTERM.

    `started` gets the namespace of the Jobs, and the URL of the health endpoint, if any.
    """
    name = check_executor_name(options.name)
    access = await load_access(options.kubeconfig, options.context)
    protect_process()
    worker = Worker(
        client=client, name=name, agents=options.agents, lanes=options.lanes,
        concurrency=options.concurrency, config=WorkerConfig(leave_running=True),
    )  # fmt: skip
    api = KubernetesApi(access.configuration, options.namespace or access.namespace)
    config = ExecutorConfig(start_grace_s=options.start_grace_s)
    executor = KubernetesExecutor(worker, api, options.templates, name=name, config=config)
    if options.health is None:
        started(api.namespace, None)
        await executor.serve(signals=True)
        return
    health = serving_health(
        *options.health, running=lambda: executor.running, ready=lambda: executor.ready
    )  # fmt: skip
    async with health as url:
        started(api.namespace, url)
        await executor.serve(signals=True)
