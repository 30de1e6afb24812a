"""`wakeful serve --processes`: a supervisor, and in each of its processes what `wakeful serve` does alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Final

from rich.text import Text

from wakeful.app.process_protection import protect_process, restored_environment
from wakeful.cli import exit_codes
from wakeful.cli.output import Output
from wakeful.cli.serve_options import load_app
from wakeful.cli.serving import Prepared, ServeOptions, greet, serve_one
from wakeful.errors import InvalidArgument
from wakeful.server.acceptor import bound_socket, url_of
from wakeful.server.processes.child import Child, Message
from wakeful.server.processes.supervisor import Supervisor
from wakeful.server.service_manager import ServiceManager
from wakeful.settings import PREFIX

#: What the processes need. The supervisor imports it for all of them: they share its memory.
_IMPORTED: Final = ("wakeful.server.serve", "wakeful.store.postgres")


def serve_processes(out: Output, options: ServeOptions) -> int:
    """Run the supervisor until a signal. It must be called without an event loop: it forks."""
    settings = options.settings
    count = settings.processes
    if not hasattr(os, "fork"):
        raise InvalidArgument(f"--processes {count}: this operating system cannot fork; start 1 process")
    if options.app_name is None:
        _check_database(settings.db.partition("://")[0], count)
    for name in _IMPORTED:
        import_module(name)
    manager = ServiceManager.of_environment()
    manager.starting("opening the database")
    listener = bound_socket(settings)
    url = url_of(listener, settings)
    removed = protect_process()

    def started(values: Mapping[str, str | bool | None]) -> None:
        greet(out, url, options, _prepared_of(values))

    supervisor = Supervisor(
        count,
        listener,
        manager,
        partial(_serve, out, options, removed),
        started,
        status=f"serving at {url} with {count} processes",
    )
    supervisor.run()
    out.say(Text("stopped", "dim"))
    return exit_codes.OK


def _serve(out: Output, options: ServeOptions, removed: Mapping[str, str], child: Child) -> int:
    """Serve in a process of the supervisor."""
    with restored_environment(removed):  # the code of an app may read variables
        scheduler = load_app(options.app_name, options.settings)
    if scheduler is not None:
        _check_database(scheduler.store.kind, options.settings.processes)

    def prepared(done: Prepared) -> None:
        child.link.send(Message("prepared", values=done._asdict()))

    asyncio.run(serve_one(out, options, scheduler, child=child, prepared=prepared))
    return exit_codes.OK


def _check_database(kind: str, count: int) -> None:
    if kind == "sqlite":
        raise InvalidArgument(
            f"--processes {count} needs PostgreSQL: an SQLite database has one writer at a time, so more "
            f"processes are not faster; set {PREFIX}DB to postgresql://…, or start 1 process"
        )


def _prepared_of(values: Mapping[str, str | bool | None]) -> Prepared:
    link = values.get("sign_in_link")
    return Prepared(
        str(values.get("key_text", "")),
        bool(values.get("has_key")),
        None if link is None else str(link),
        bool(values.get("echoes")),
    )
