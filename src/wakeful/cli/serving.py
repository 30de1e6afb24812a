"""What `wakeful serve` does: in one process alone, or in each process of a supervisor (`--processes`).

At the first start it creates the key of this machine's command line. `--dev` is for a first try: the target
`echo`, and finished runs on the console.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.help import OutputLost
from wakeful.cli.output import Output, page
from wakeful.cli.pages import event_line
from wakeful.cli.serve_options import database_text, load_app, wakeful_command
from wakeful.cli.times import local_zone
from wakeful.client.api_key_file import key_file, read_key, store_key
from wakeful.client.rest import DEFAULT_URL
from wakeful.client.types import EventShape
from wakeful.errors import InvalidArgument, Unauthenticated, Unavailable, WakefulError
from wakeful.settings import PREFIX, Settings

if TYPE_CHECKING:
    from wakeful.app import Wakeful
    from wakeful.server.processes.child import Child

#: How long one wait for events lasts.
_WAIT_S: Final = 60.0
_AFTER_ERROR_S: Final = 1.0
#: The logger of HTTP requests.
_REQUESTS: Final = "wakeful.http"
NEW_DATABASE: Final = (
    "a new database: agent default has the target echo, so its runs succeed at once and return their message"
)
#: What the processes need. The supervisor imports it for all of them: they share its memory.
_IMPORTED: Final = ("wakeful.server.serve", "wakeful.store.postgres")


class LocalKey(NamedTuple):
    """Where this machine's CLI finds its key."""

    text: str
    #: the key; None: there is no valid one
    key: str | None


async def sign_in_url(url: str, scheduler: Wakeful, key: str) -> str:
    """Return a one-time link that signs in to the dashboard with this key."""
    services = scheduler.services
    link = await services.auth.web_sessions.create_link(await services.auth.keys.authenticate(key))
    return f"{url}/sign-in#{link.token}"


async def local_key(url: str, scheduler: Wakeful, new_key: bool, admin_key: str | None) -> LocalKey:
    """Return where this machine's CLI finds its key, and the key if it is valid."""
    from wakeful.service.auth.access import LOCAL

    keys = scheduler.services.auth.keys
    key = await keys.first_key()
    if key is None and new_key:
        _, key = await keys.create(LOCAL, None, {"name": "local", "role": "admin"})
    if key is not None:
        try:
            return LocalKey(f"{store_key(url, key)} (a new admin key; the CLI reads it)", key)
        except WakefulError as error:  # print it: it cannot be read again
            return LocalKey(f"{key} (store it now, it is not shown again: {error.message})", None)
    if admin_key is not None:
        try:
            await keys.authenticate(admin_key)
        except Unauthenticated as error:
            return LocalKey(f"WAKEFUL_ADMIN_KEY: {error.message}", None)
        return LocalKey("from WAKEFUL_ADMIN_KEY", admin_key)
    stored = read_key(url)
    if stored is None:
        return LocalKey("none for this machine's CLI; set WAKEFUL_KEY, or start once with --new-key", None)
    try:
        await keys.authenticate(stored)
    except Unauthenticated:
        return LocalKey(
            f"{key_file(url)} belongs to another database; set WAKEFUL_KEY, or start once with --new-key",
            None,
        )
    return LocalKey(f"{key_file(url)} (the CLI reads it)", stored)


def link_lines(link: str | None) -> list[Text]:
    """Return the lines that show a sign-in link, if there is one."""
    if link is None:
        return []
    return [Text("dashboard (this link works once, for 5 minutes):", "dim"), Text(f"  {link}")]


class DevMode:
    """Gives the agent `default` of a new database the target `echo`, and prints the runs that finish."""

    def __init__(self, out: Output, *, prints: bool) -> None:
        self._out = out
        #: whether it prints finished runs: JSON output and JSON logs stay free of other lines
        self.prints = prints and not out.as_json
        #: whether the agent has the target since this start
        self.echoes = False

    async def prepare(self, scheduler: Wakeful) -> None:
        """Set the target of the agent `default` if the database is new."""
        from wakeful.launch.echo import ECHO

        self.echoes = await scheduler.services.agents.give_first_target(ECHO)

    @contextlib.contextmanager
    def show_runs(self, scheduler: Wakeful) -> Iterator[None]:
        """Print a line for each run that finishes meanwhile."""
        if not self.prints:
            yield
            return
        if logging.getLogger().level == logging.INFO:  # a line for each request would hide the runs
            logging.getLogger(_REQUESTS).setLevel(logging.WARNING)
        task = asyncio.get_running_loop().create_task(self._print_runs(scheduler))
        try:
            yield
        finally:
            task.cancel()

    async def _print_runs(self, scheduler: Wakeful) -> None:
        from wakeful.service.auth.access import LOCAL
        from wakeful.service.event_stream import serialize_event

        tz = local_zone()
        listener = await scheduler.services.events.subscribe(LOCAL, "default", types=["run.finished"])
        with contextlib.closing(listener), contextlib.suppress(OSError, OutputLost):
            while True:
                try:
                    found = await listener.next(_WAIT_S)
                except Unavailable:  # the engine reports it
                    await asyncio.sleep(_AFTER_ERROR_S)
                    continue
                if found is None:
                    return
                shown = [cast(EventShape, serialize_event(event)) for event in found]
                self._out.say(*(event_line(event, tz) for event in shown))


class ServeOptions(NamedTuple):
    """What `wakeful serve` was asked for."""

    settings: Settings
    app_name: str | None
    dev: bool
    new_key: bool


class Prepared(NamedTuple):
    """What is done once, before the server accepts requests."""

    key_text: str
    #: whether this machine's command line has a valid key
    has_key: bool
    sign_in_link: str | None = None
    #: whether the agent `default` got the target `echo`
    echoes: bool = False


async def serve_one(
    out: Output,
    options: ServeOptions,
    scheduler: Wakeful | None,
    *,
    child: Child | None = None,
    prepared: Callable[[Prepared], None] | None = None,
) -> None:
    """Serve until a signal. `child` is given in one of several processes.

    `prepared` gets what was done once; without it, it is printed when the server has started.
    """
    from wakeful.server.serve import serve as run

    settings = options.settings
    done = Prepared("", has_key=False)
    dev_mode = DevMode(out, prints=settings.log_format == "console") if options.dev else None
    stack = contextlib.ExitStack()

    async def prepare(url: str, scheduler: Wakeful) -> None:
        # Before the server accepts requests: once /readyz responds, the key file exists.
        nonlocal done
        link = None
        try:
            key = await local_key(url, scheduler, options.new_key, settings.admin_key)
            if options.dev and key.key is not None:
                link = await sign_in_url(url, scheduler, key.key)
        except WakefulError as error:
            key = LocalKey(error.message, None)
        done = Prepared(key.text, key.key is not None, link, dev_mode is not None and dev_mode.echoes)
        if prepared is not None:
            prepared(done)

    def announce(url: str, scheduler: Wakeful) -> None:
        if prepared is None and child is None:
            with contextlib.suppress(OutputLost):  # a full disk stops no server
                greet(out, url, options, done)
        if dev_mode is not None and (child is None or child.number == 1):
            stack.enter_context(dev_mode.show_runs(scheduler))

    first = child is None or child.first
    opened = None if dev_mode is None or not first else dev_mode.prepare
    with stack:
        await run(
            settings,
            app=scheduler,
            opened=opened,
            prepare=prepare if first else None,
            started=announce,
            child=child,
        )


def greet(out: Output, url: str, options: ServeOptions, done: Prepared) -> None:
    """Print the server's URL, database and key, and commands to try."""
    wakeful = wakeful_command()
    if url != DEFAULT_URL:
        wakeful = f"WAKEFUL_URL={url} {wakeful}"
    settings = options.settings
    db_name = database_text(settings, options.app_name)
    prints = options.dev and settings.log_format == "console" and not out.as_json
    many = settings.processes > 1
    out.show(
        {
            "url": url,
            "db": db_name,
            "keyFile": str(key_file(url)),
            "pid": os.getpid(),
            **({"processes": settings.processes} if many else {}),
            **({"signInUrl": done.sign_in_link} if done.sign_in_link else {}),
        },
        Text("Wakeful is running", "bold green"),
        page(
            {
                "url": Text(url, "bold"),
                "db": db_name,
                **({"processes": str(settings.processes)} if many else {}),
                "key": Text(done.key_text, "" if done.has_key else "yellow"),
            }
        ),
        *link_lines(done.sign_in_link),
        *([Text(NEW_DATABASE, "green")] if done.echoes else []),
        Text("try", "dim"),
        Text(f"  {wakeful} add hello --schedule 'every 10s' --message 'good morning'"),
        Text(f"  {wakeful} run hello --wait"),
        Text(f"  {wakeful} list"),
        Text(f"  {wakeful} open"),
        Text(f"  {url}/docs for the HTTP API; Ctrl-C stops", "dim"),
        *([Text("finished runs:", "dim")] if prints else []),
    )


def serve_processes(out: Output, options: ServeOptions) -> int:
    """Run the supervisor until a signal. It must be called without an event loop: it forks."""
    from wakeful.app.process_protection import protect_process
    from wakeful.server.acceptor import bound_socket, socket_url
    from wakeful.server.processes.supervisor import Supervisor
    from wakeful.server.service_manager import ServiceManager

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
    url = socket_url(listener, settings)
    removed = protect_process()

    def announce(values: Mapping[str, str | bool | None]) -> None:
        with contextlib.suppress(OutputLost):
            greet(out, url, options, _read_prepared(values))

    supervisor = Supervisor(
        count,
        listener,
        manager,
        partial(_serve, out, options, removed),
        announce,
        status=f"serving at {url} with {count} processes",
    )
    supervisor.run()
    out.say(Text("stopped", "dim"))
    return exit_codes.OK


def _serve(out: Output, options: ServeOptions, removed: Mapping[str, str], child: Child) -> int:
    """Serve in a process of the supervisor."""
    from wakeful.app.process_protection import restored_environment
    from wakeful.server.processes.child import Message

    with restored_environment(removed):  # the code of an app may read variables
        scheduler = load_app(options.app_name, options.settings)
    if scheduler is not None:
        _check_database(scheduler.store.kind, options.settings.processes)

    def report(done: Prepared) -> None:
        child.link.send(Message("prepared", values=done._asdict()))

    asyncio.run(serve_one(out, options, scheduler, child=child, prepared=report))
    return exit_codes.OK


def _check_database(kind: str, count: int) -> None:
    if kind == "sqlite":
        raise InvalidArgument(
            f"--processes {count} needs PostgreSQL: an SQLite database has one writer at a time, so more "
            f"processes are not faster; set {PREFIX}DB to postgresql://…, or start 1 process"
        )


def _read_prepared(values: Mapping[str, str | bool | None]) -> Prepared:
    link = values.get("sign_in_link")
    return Prepared(
        str(values.get("key_text", "")),
        bool(values.get("has_key")),
        None if link is None else str(link),
        bool(values.get("echoes")),
    )
