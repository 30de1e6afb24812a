"""`wakeful serve`, `worker`, which does the same without the HTTP API, and `migrate`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.arguments import LogFormat, LogLevel, check_given
from wakeful.cli.help import OutputLost
from wakeful.cli.serve_options import (
    AppOption,
    Db,
    WaitForDb,
    database_text,
    keep_log,
    load_app,
    serve_health,
    settings_with,
)
from wakeful.cli.session import Afterwards, CliSession, command
from wakeful.errors import InvalidArgument
from wakeful.settings import WAIT_FOR_DB_S, Settings

_PANEL: Final = "Server"


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "serve",
        examples=(
            "wakeful serve --dev",
            "wakeful serve --db postgresql://localhost/wakeful --host 0.0.0.0",
            "wakeful serve --db postgresql://localhost/wakeful --processes auto",
        ),
        panel=_PANEL,
        calls_server=False,
    )
    async def serve(
        s: CliSession,
        host: Annotated[
            str | None, typer.Option("--host", help="the address to listen on (default: 127.0.0.1)")
        ] = None,
        port: Annotated[
            int | None, typer.Option("--port", min=0, max=65_535, help="default: 9253; 0 picks a free port")
        ] = None,
        db: Db = None,
        app_name: AppOption = None,
        processes: Annotated[
            str | None,
            typer.Option(
                "--processes", metavar="N|auto", help="the processes that share the port; auto: one per core"
            ),
        ] = None,
        dev: Annotated[
            bool,
            typer.Option(
                "--dev",
                help="to try out: allow private webhooks, show finished runs, echo on a new database",
            ),
        ] = False,
        new_key: Annotated[
            bool, typer.Option("--new-key", help="create an admin key and store it for this machine's CLI")
        ] = False,
        wait_for_db: WaitForDb = None,
        log_level: LogLevel = None,
        log_format: LogFormat = None,
    ) -> Afterwards | None:
        """Run the scheduler and the HTTP API. WAKEFUL_… variables and wakeful.toml set the rest.

        The first start creates an admin key and stores it for this machine's CLI, unless WAKEFUL_ADMIN_KEY
        sets one. Several processes need PostgreSQL.
        """
        settings = settings_with(
            host=host, port=port, db=db, dev=dev, wait_for_db=wait_for_db,
            log_level=log_level, log_format=log_format, processes=processes,
        )  # fmt: skip
        keep_log(settings)
        from wakeful.cli.serving import ServeOptions, serve_one, serve_processes

        options = ServeOptions(settings, app_name, dev, new_key)
        if settings.processes > 1:
            return partial(serve_processes, s.out, options)
        from wakeful.app.process_protection import protect_process

        scheduler = load_app(app_name, settings)
        protect_process()
        await serve_one(s.out, options, scheduler)
        s.out.say(Text("stopped", "dim"))
        return None

    @command(
        app,
        "worker",
        examples=(
            "wakeful worker --db postgresql://localhost/wakeful",
            "wakeful worker --app myapp:app --port 0",
            "wakeful worker --nats --app myapp:app --concurrency 20",
        ),
        panel=_PANEL,
        calls_server=False,
    )
    async def worker(
        s: CliSession,
        host: Annotated[
            str | None, typer.Option("--host", help="the address for health and metrics (default: 127.0.0.1)")
        ] = None,
        port: Annotated[
            int | None,
            typer.Option(
                "--port", min=0, max=65_535, help="default: 9254, else a free port; 0 picks a free port"
            ),
        ] = None,
        db: Db = None,
        app_name: AppOption = None,
        dev: Annotated[
            bool, typer.Option("--dev", help="allow webhooks to this machine and private networks")
        ] = False,
        wait_for_db: WaitForDb = None,
        nats: Annotated[
            bool,
            typer.Option("--nats", help="execute queue messages from WAKEFUL_NATS_URL; needs no database"),
        ] = False,
        subject: Annotated[
            str | None,
            typer.Option("--subject", help="with --nats: the subject of the messages (wakeful.work.>)"),
        ] = None,
        concurrency: Annotated[
            int, typer.Option("--concurrency", min=1, max=1000, help="with --nats: messages at once")
        ] = 10,
        grace: Annotated[
            float, typer.Option("--grace", min=0, help="with --nats: seconds for running work at the stop")
        ] = 10.0,
        log_level: LogLevel = None,
        log_format: LogFormat = None,
    ) -> None:
        """Run the scheduler without the HTTP API: one more replica on the same database.

        It serves /healthz, /readyz and /metrics on its own port, unless WAKEFUL_WORKER_HTTP is false. At
        start it waits a minute for an unavailable database; --wait-for-db 0 disables that. With --nats it
        is no replica: it calls the functions of --app for messages of queue targets. Then it serves
        /healthz and /readyz only with --port.
        """
        from wakeful.app import Wakeful
        from wakeful.app.process_protection import protect_process
        from wakeful.server.serve import work

        settings = settings_with(
            host=host, db=db, dev=dev, wait_for_db=wait_for_db, log_level=log_level, log_format=log_format
        )
        keep_log(settings)
        if nats:
            await _work_on_queue(s, settings, app_name, port, subject, concurrency, grace)
            return
        if port is not None:
            settings = replace(settings, worker_port=port)
        scheduler = load_app(app_name, settings, wait_for_db=WAIT_FOR_DB_S)
        if settings.wait_for_db is None:
            settings = replace(settings, wait_for_db=WAIT_FOR_DB_S)
        scheduler = scheduler or Wakeful(settings.db, settings=settings)
        db_name = database_text(settings, app_name)
        protect_process()

        def announce(url: str | None) -> None:
            at = f"; health and metrics at {url}" if url else ""
            with contextlib.suppress(OutputLost):  # a full disk stops no worker
                s.out.show({"db": db_name, "url": url, "pid": os.getpid()}, Text(f"working on {db_name}{at}"))

        await work(settings, scheduler, started=announce)
        s.out.say(Text("stopped", "dim"))

    @command(
        app,
        "migrate",
        examples=["wakeful migrate", "wakeful migrate --db postgresql://owner@db/main"],
        panel=_PANEL,
        calls_server=False,
    )
    async def migrate(s: CliSession, db: Db = None, wait_for_db: WaitForDb = None) -> None:
        """Create or upgrade the tables of the database.

        `serve` and `worker` do the same at start. Use this if their database role may not create tables.
        """
        from wakeful.service.admin.status import migrate_database

        settings = settings_with(db=db, wait_for_db=wait_for_db)
        schema = await migrate_database(settings.db, settings.wait_for_db or 0)
        db_name = database_text(settings, None)
        s.out.show({"db": db_name, "schema": schema}, Text(f"{db_name} has schema {schema}"))


async def _work_on_queue(
    s: CliSession,
    settings: Settings,
    app_name: str | None,
    port: int | None,
    subject: str | None,
    concurrency: int,
    grace: float,
) -> None:
    """Execute messages of queue targets with the functions of an app, until SIGINT or SIGTERM."""
    from wakeful.app.process_protection import protect_process
    from wakeful.launch.queue.connection import NatsConnection, nats_options
    from wakeful.launch.queue.worker import ALL_WORK, QueueWorker, WorkerOptions

    check_given("--subject", subject)
    app = load_app(app_name, settings)
    if app is None:
        raise InvalidArgument("--nats: give the functions with --app module:name, such as myagents:app")
    options = WorkerOptions(
        subject=subject or ALL_WORK,
        concurrency=concurrency,
        grace_s=grace,
        create_streams=settings.nats_create_streams,
        replicas=settings.nats_replicas,
    )

    protect_process()
    if not settings.nats_url:
        raise InvalidArgument("--nats: set WAKEFUL_NATS_URL, such as nats://127.0.0.1:4222")
    worker = QueueWorker(NatsConnection(nats_options(settings), "wakeful-worker"), app.functions, options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, worker.stop)
    health = None if port is None else (settings.host, port)
    async with serve_health(health, running=lambda: worker.running, ready=lambda: worker.ready) as url:
        at = f"; health at {url}" if url else ""
        text = Text(f"taking messages of {options.subject}{at}")
        s.out.show({"subject": options.subject, "url": url, "pid": os.getpid()}, text)
        await worker.run()
    s.out.say(Text("stopped", "dim"))
