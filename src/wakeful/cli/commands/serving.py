"""Being the server: `serve`, and `worker`, which is the same without HTTP."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from wakeful.cli.calling import how_to_call
from wakeful.cli.output import Output
from wakeful.cli.session import Session, command
from wakeful.cli.show.tables import page
from wakeful.client.api_key_file import key_file, leave_key, read_key
from wakeful.client.client import DEFAULT_URL
from wakeful.errors import InvalidArgument, Unauthenticated, WakefulError
from wakeful.logs import ConsoleFormatter
from wakeful.process_protection import protect_process
from wakeful.settings import PREFIX, WAIT_FOR_DB_S, Settings, active_settings, read_settings
from wakeful.store.address import shown_address

if TYPE_CHECKING:
    from wakeful.app import Wakeful

_PANEL: Final = "Server"
_FILE: Final = Path("wakeful.toml")
Db = Annotated[
    str | None, typer.Option("--db", help="sqlite:///wakeful.db, postgresql://…, or the path of a file")
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:NAME", help="a Wakeful of your own, with its functions"),
]
WaitForDb = Annotated[
    int | None,
    typer.Option(
        "--wait-for-db",
        metavar="[SECONDS]",
        min=0,
        help=f"wait at the start for a database that is unavailable, {WAIT_FOR_DB_S} s unless it says",
    ),
]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error")]


def register(app: typer.Typer) -> None:
    """Put these commands on the app."""

    @command(app, "serve", panel=_PANEL, asks=False)
    async def serve(
        s: Session,
        host: Annotated[str | None, typer.Option("--host", help="where to listen (127.0.0.1)")] = None,
        port: Annotated[
            int | None, typer.Option("--port", min=0, max=65_535, help="(9253); 0 takes a free one")
        ] = None,
        db: Db = None,
        own: AppOption = None,
        dev: Annotated[
            bool, typer.Option("--dev", help="webhooks may reach this machine and private networks")
        ] = False,
        new_key: Annotated[
            bool, typer.Option("--new-key", help="make an admin key and leave it for this machine's CLI")
        ] = False,
        wait_for_db: WaitForDb = None,
        log_level: LogLevel = "info",
    ) -> None:
        """Keep time, wake agents, and answer HTTP. Settings come from WAKEFUL_… and wakeful.toml too.

        The first start makes an admin key and leaves it where the CLI of this machine finds it, unless
        WAKEFUL_ADMIN_KEY sets one.
        """
        from wakeful.api.server import serve as run

        keep_log(log_level)
        settings = settings_with(host=host, port=port, db=db, dev=dev, wait_for_db=wait_for_db)
        scheduler = own_app(own, settings)
        place = database(settings, own)
        where, good = "", False

        async def prepare(url: str, scheduler: Wakeful) -> None:
            # Before requests are taken: when /readyz answers, the key is where it should be.
            nonlocal where, good
            try:
                where, good = await _key(url, scheduler, new_key, settings.admin_key)
            except WakefulError as error:
                where, good = error.message, False

        def started(url: str, scheduler: Wakeful) -> None:
            _greet(s.out, url, place, where, good)

        protect_process()
        await run(settings, app=scheduler, prepare=prepare, started=started)
        s.out.say(Text("stopped", "dim"))

    @command(app, "worker", panel=_PANEL, asks=False)
    async def worker(
        s: Session,
        host: Annotated[
            str | None, typer.Option("--host", help="where to listen for health and metrics (127.0.0.1)")
        ] = None,
        port: Annotated[
            int | None,
            typer.Option("--port", min=0, max=65_535, help="(9254, or a free one); 0 takes a free one"),
        ] = None,
        db: Db = None,
        own: AppOption = None,
        dev: Annotated[
            bool, typer.Option("--dev", help="webhooks may reach this machine and private networks")
        ] = False,
        wait_for_db: WaitForDb = None,
        log_level: LogLevel = "info",
    ) -> None:
        """Keep time and wake agents, without the API: one more replica on the same database.

        It answers /healthz, /readyz and /metrics on a port of its own, unless WAKEFUL_WORKER_HTTP is false.
        It waits a minute at the start for a database that is unavailable; --wait-for-db 0 does not.
        """
        from wakeful.api.server import work
        from wakeful.app import Wakeful

        keep_log(log_level)
        settings = settings_with(host=host, db=db, dev=dev, wait_for_db=wait_for_db)
        if port is not None:
            settings = replace(settings, worker_port=port)
        scheduler = own_app(own, settings, wait_for_db=WAIT_FOR_DB_S)
        if settings.wait_for_db is None:
            settings = replace(settings, wait_for_db=WAIT_FOR_DB_S)
        scheduler = scheduler or Wakeful(settings.db, settings=settings)
        place = database(settings, own)
        protect_process()

        def started(url: str | None) -> None:
            at = f"; health and metrics at {url}" if url else ""
            s.out.show({"db": place, "url": url, "pid": os.getpid()}, Text(f"working on {place}{at}"))

        await work(settings, scheduler, started=started)
        s.out.say(Text("stopped", "dim"))


def with_default_wait(arguments: list[str]) -> list[str]:
    """Give a `--wait-for-db` that says no seconds those it has by default: Typer knows no such options.

    >>> with_default_wait(["serve", "--wait-for-db", "--dev"])
    ['serve', '--wait-for-db=60', '--dev']
    """
    if arguments[:1] not in (["serve"], ["worker"]):
        return arguments
    following = [*arguments[1:], ""]
    return [
        f"{each}={WAIT_FOR_DB_S}" if each == "--wait-for-db" and not after.isdecimal() else each
        for each, after in zip(arguments, following, strict=True)
    ]


def settings_with(
    *,
    host: str | None = None,
    port: int | None = None,
    db: str | None = None,
    dev: bool = False,
    wait_for_db: int | None = None,
) -> Settings:
    """The settings of the environment and of wakeful.toml, with what the options say."""
    settings = read_settings(os.environ, _FILE)
    if db is not None:
        settings = replace(settings, db=db if "://" in db else f"sqlite:///{db}")
    return replace(
        settings,
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
        allow_private_targets=settings.allow_private_targets or dev,
        wait_for_db=settings.wait_for_db if wait_for_db is None else wait_for_db,
    )


#: Options that say the same as a setting.
_OPTIONS: Final = {"db": "--db", "allow_private_targets": "--dev", "wait_for_db": "--wait-for-db"}


def own_app(place: str | None, settings: Settings, *, wait_for_db: int | None = None) -> Wakeful | None:
    """The scheduler that `module:name` names, from this directory or what is installed.

    It is made with these settings, apart from what its own arguments say; a setting that these leave without
    effect is refused. `wait_for_db` is what holds where neither says.
    """
    if place is None:
        return None
    from wakeful.app import Wakeful
    from wakeful.app.overrides import ignored_settings

    module, colon, name = place.partition(":")
    sys.path.insert(0, os.getcwd())
    waiting = settings.wait_for_db if settings.wait_for_db is not None else wait_for_db
    try:
        with active_settings(replace(settings, wait_for_db=waiting)):
            found = getattr(import_module(module), name) if colon else None
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"--app: {error}; write it as module:name, such as myagents:app") from error
    if not isinstance(found, Wakeful):
        raise InvalidArgument(
            f"--app: '{place}' is no Wakeful; write it as module:name, such as myagents:app"
        )
    for setting, argument in ignored_settings(settings, found.overrides):
        said = " or ".join([*([_OPTIONS[setting]] if setting in _OPTIONS else []), PREFIX + setting.upper()])
        raise InvalidArgument(
            f"{said} has no effect: {place} is made with an argument `{argument}` of its own; "
            "leave out one of them"
        )
    return found


def keep_log(level: str) -> None:
    """Send the logs to stderr."""
    known = {"debug", "info", "warning", "error"}
    if level.lower() not in known:
        raise InvalidArgument(f"--log-level: '{level}' is not one of {', '.join(sorted(known))}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleFormatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _greet(out: Output, url: str, place: str, where: str, good: bool) -> None:
    """Say where it is, where its key is, and what to try next."""
    wakeful = how_to_call()
    if url != DEFAULT_URL:
        wakeful = f"WAKEFUL_URL={url} {wakeful}"
    out.show(
        {"url": url, "db": place, "keyFile": str(key_file(url)), "pid": os.getpid()},
        Text("Wakeful is awake", "bold green"),
        page({"url": Text(url, "bold"), "db": place, "key": Text(where, "" if good else "yellow")}),
        Text("next", "dim"),
        Text(f"  {wakeful} add hello --schedule 'every 10s' --message 'good morning'"),
        Text(f"  {wakeful} list"),
        Text(f"  {url}/docs for the HTTP API; Ctrl-C stops", "dim"),
    )


async def _key(url: str, scheduler: Wakeful, new_key: bool, admin_key: str | None) -> tuple[str, bool]:
    """Where the key for this machine is, and whether it is good for something."""
    from wakeful.service.auth.access import LOCAL

    keys = scheduler.services.keys
    key = await keys.first_key()
    if key is None and new_key:
        _, key = await keys.create(LOCAL, None, {"name": "local", "role": "admin"})
    if key is not None:
        try:
            return f"{leave_key(url, key)} (an admin's, new; the CLI finds it)", True
        except WakefulError as error:  # it is not to be had again, so it must not be lost
            return f"{key} (keep it, it is not shown again: {error.message})", False
    if admin_key is not None:
        try:
            await keys.authenticate(admin_key)
        except Unauthenticated as error:
            return f"WAKEFUL_ADMIN_KEY: {error.message}", False
        return "the one in WAKEFUL_ADMIN_KEY", True
    there = read_key(url)
    if there is None:
        return "none is here for the CLI; set WAKEFUL_KEY, or start once with --new-key", False
    try:
        await keys.authenticate(there)
    except Unauthenticated:
        return f"{key_file(url)} is of another database; set WAKEFUL_KEY, or start once with --new-key", False
    return f"{key_file(url)} (the CLI finds it)", True


def database(settings: Settings, own: str | None) -> str:
    """Which database it is, for people to read: without a password."""
    if own is not None:
        return f"that of {own}"
    return shown_address(settings.db)
