"""`wakeful executor kubernetes`: executes the runs of pull jobs as Jobs of Kubernetes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import LogFormat, LogLevel, check_given
from wakeful.cli.session import CliSession, command, command_group
from wakeful.client.rest import RestClient
from wakeful.errors import InvalidArgument

if TYPE_CHECKING:
    from wakeful.remote.kubernetes.templates import Manifest

_PANEL: Final = "Server"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    group = command_group(app, "executor", "Execute the runs of pull jobs elsewhere.", panel=_PANEL)

    @command(
        group,
        "kubernetes",
        examples=(
            "wakeful executor kubernetes --template job.yaml --health 8080",
            "wakeful executor kubernetes --template cpu.yaml --template gpu=gpu.yaml --agents writer",
        ),
    )
    async def kubernetes(
        s: CliSession,
        template: Annotated[
            list[str],
            typer.Option(
                "--template",
                metavar="[NAME=]FILE",
                help="the manifest of a Job; a payload chooses one by its name (repeatable)",
            ),
        ],
        name: Annotated[
            str,
            typer.Option("--name", help="the same after a restart; label of its Jobs and worker of its runs"),
        ] = "kubernetes",
        namespace: Annotated[
            str | None,
            typer.Option("--namespace", help="of the Jobs (default: that of the pod or the kubeconfig)"),
        ] = None,
        kubeconfig: Annotated[
            str | None,
            typer.Option("--kubeconfig", metavar="FILE", help="instead of the service account of the pod"),
        ] = None,
        context: Annotated[
            str | None, typer.Option("--context", help="the context of the kubeconfig")
        ] = None,
        concurrency: Annotated[
            int, typer.Option("--concurrency", min=1, max=1000, help="how many Jobs run at once")
        ] = 10,
        agents: Annotated[
            str | None, typer.Option("--agents", help="only runs of these agents, separated by commas")
        ] = None,
        lanes: Annotated[
            str | None, typer.Option("--lanes", help="only runs of these lanes, separated by commas")
        ] = None,
        start_grace: Annotated[
            float,
            typer.Option(
                "--start-grace", min=0, help="seconds for a pod that cannot start (ImagePullBackOff)"
            ),
        ] = 120.0,
        health: Annotated[
            int | None,
            typer.Option("--health", metavar="PORT", min=0, max=65_535, help="serve /healthz and /readyz"),
        ] = None,
        host: Annotated[
            str, typer.Option("--host", help="the address for --health (default: 0.0.0.0)")
        ] = "0.0.0.0",
        log_level: LogLevel = None,
        log_format: LogFormat = None,
    ) -> None:
        """Execute the runs of pull jobs as Jobs of Kubernetes, one for each attempt.

        It uses the service account of its pod, or a kubeconfig. After SIGTERM it claims no more runs and
        leaves its Jobs running: the next executor of the same name adopts them.
        """
        from wakeful.cli.serve_options import keep_log, settings_with

        check_given("--namespace", namespace)
        check_given("--kubeconfig", kubeconfig)
        check_given("--context", context)
        keep_log(settings_with(log_level=log_level, log_format=log_format))
        options = ExecutorOptions(
            name=name,
            templates=_templates(template),
            namespace=namespace,
            kubeconfig=kubeconfig,
            context=context,
            concurrency=concurrency,
            agents=_agents(s, agents),
            lanes=_names("--lanes", lanes),
            start_grace_s=start_grace,
            health=None if health is None else (host, health),
        )

        def announce(where: str, url: str | None) -> None:
            at = f"; health at {url}" if url else ""
            shown = {"name": name, "namespace": where, "url": url, "pid": os.getpid()}
            s.out.show(shown, Text(f"executing runs as Jobs in the namespace {where}{at}"))

        await execute_on_kubernetes(s.client, options, announce)
        s.out.say(Text("stopped", "dim"))


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
    from wakeful.app.process_protection import protect_process
    from wakeful.cli.serve_options import serve_health
    from wakeful.remote.kubernetes.api import KubernetesApi, load_access
    from wakeful.remote.kubernetes.executor import ExecutorConfig, KubernetesExecutor
    from wakeful.remote.kubernetes.templates import check_executor_name
    from wakeful.remote.worker import Worker, WorkerConfig

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
    health = serve_health(options.health, running=lambda: executor.running, ready=lambda: executor.ready)
    async with health as url:
        started(api.namespace, url)
        await executor.serve(signals=True)


def _agents(s: CliSession, text: str | None) -> tuple[str, ...]:
    """Return the agents of --agents, else that of --agent."""
    if text is None:
        return () if s.agent is None else (s.agent,)
    if s.agent_option:
        raise InvalidArgument("give --agents or --agent, not both")
    return _names("--agents", text)


def _names(option: str, text: str | None) -> tuple[str, ...]:
    """Return the names of a list; none if the option is absent. Without a name, a list would mean all."""
    if text is None:
        return ()
    names = tuple(filter(None, (each.strip() for each in text.split(","))))
    if not names:
        raise InvalidArgument(f"{option}: it names none; write names, separated by commas, or leave it out")
    return names


def _templates(options: list[str]) -> dict[str, Manifest]:
    from wakeful.remote.kubernetes.templates import check_template, template_names
    from wakeful.values.yaml_text import load_yaml

    templates = {}
    for name, file in template_names(options).items():
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"--template: cannot read {file}: {error}") from error
        templates[name] = check_template(name, load_yaml(text, file))
    return templates
