"""What the commands that start a server or a worker share: options, settings, the log, the app, health."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wakeful.cli.arguments import check_given
from wakeful.cli.output import log_instead
from wakeful.errors import InvalidArgument, Unavailable, WakefulError
from wakeful.logs.redaction import add_secrets, setting_secrets
from wakeful.logs.setup import Format, configure, log_failure, log_notice, requested_format
from wakeful.settings import FILE, PREFIX, WAIT_FOR_DB_S, Settings, active_settings, read_settings
from wakeful.store.address import mask_address

if TYPE_CHECKING:
    from aiohttp import web

    from wakeful.app import Wakeful

Db = Annotated[
    str | None,
    typer.Option("--db", help="sqlite:///wakeful.db, postgresql://…, or the path of an SQLite file"),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:NAME", help="the Wakeful object that registers your functions"),
]
WaitForDb = Annotated[
    int | None,
    typer.Option(
        "--wait-for-db",
        metavar="[SECONDS]",
        min=0,
        help=f"at start, wait this long for an unavailable database ({WAIT_FOR_DB_S} without a value)",
    ),
]


def add_default_wait(arguments: list[str]) -> list[str]:
    """Add the default to `--wait-for-db` without a value: Typer has no options with an optional value.

    >>> add_default_wait(["serve", "--wait-for-db", "--dev"])
    ['serve', '--wait-for-db=60', '--dev']
    """
    if arguments[:1] not in (["serve"], ["worker"], ["migrate"]):
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
    log_level: str | None = None,
    log_format: str | None = None,
    processes: str | None = None,
) -> Settings:
    """Return the settings of the environment and wakeful.toml, overridden by the options."""
    options = {"LOG_LEVEL": log_level, "LOG_FORMAT": log_format, "PROCESSES": processes}
    given = {f"{PREFIX}{name}": value for name, value in options.items() if value is not None}
    try:
        settings = read_settings({**os.environ, **given}, FILE)
    except InvalidArgument as error:
        name, _, rest = error.message.partition(": ")
        if name not in given:
            raise
        option = f"--{name.removeprefix(PREFIX).lower().replace('_', '-')}"
        raise InvalidArgument(f"{option}: {rest}") from error
    if db is not None:
        check_given("--db", db)  # else it would be a database in memory
        settings = replace(settings, db=db if "://" in db else f"sqlite:///{db}")
    return replace(
        settings,
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
        allow_private_targets=settings.allow_private_targets or dev,
        wait_for_db=settings.wait_for_db if wait_for_db is None else wait_for_db,
    )


#: The options that override a setting.
_OPTIONS: Final = {"db": "--db", "allow_private_targets": "--dev", "wait_for_db": "--wait-for-db"}


def load_app(path: str | None, settings: Settings, *, wait_for_db: int | None = None) -> Wakeful | None:
    """Import the Wakeful object `module:name` from this directory or the installed packages.

    It is built with these settings, except where its own arguments override them. A setting that an argument
    overrides is refused. `wait_for_db` is the default of that setting.
    """
    if path is None:
        return None
    from wakeful.app import Wakeful
    from wakeful.app.overrides import ignored_settings

    module, colon, name = path.partition(":")
    sys.path.insert(0, os.getcwd())
    waiting = settings.wait_for_db if settings.wait_for_db is not None else wait_for_db
    try:
        with active_settings(replace(settings, wait_for_db=waiting)):
            found = getattr(import_module(module), name) if colon else None
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"--app: {error}; write it as module:name, such as myagents:app") from error
    if not isinstance(found, Wakeful):
        raise InvalidArgument(
            f"--app: '{path}' is not a Wakeful object; write it as module:name, such as myagents:app"
        )
    for setting, argument in ignored_settings(settings, found.overrides):
        names = " or ".join([*([_OPTIONS[setting]] if setting in _OPTIONS else []), PREFIX + setting.upper()])
        raise InvalidArgument(
            f"{names} has no effect: the code of {path} passes the argument `{argument}`; remove one of them"
        )
    return found


def keep_log(settings: Settings) -> None:
    """Configure the log on stderr, and keep the credentials of the settings out of it."""
    add_secrets(setting_secrets(settings))
    _configure(settings.log_format, settings.log_level)


def keep_early_log(arguments: list[str]) -> None:
    """Configure the JSON format before the arguments are checked, so that their errors have it too."""
    requested = requested_format(arguments, os.environ)
    if requested is None:
        with contextlib.suppress(WakefulError, OSError):  # reported when the command reads the settings
            requested = read_settings(os.environ, FILE).log_format
    if requested == "json":
        _configure("json", "info")


def _configure(format: Format, level: str) -> None:
    if configure(format, level):
        log_instead(error=log_failure, warning=log_notice)


def wakeful_command() -> str:
    """Return what to type for `wakeful` in the commands that are printed to be copied.

    It is the plain name if PATH finds it, else the path next to this Python.
    """
    if shutil.which("wakeful"):
        return "wakeful"
    script = Path(sys.executable).with_name("wakeful")
    if script.exists():
        below_here = script.is_relative_to(Path.cwd())
        return shlex.quote(os.path.relpath(script) if below_here else str(script))
    return f"{shlex.quote(sys.executable)} -m wakeful"


def database_text(settings: Settings, app_name: str | None) -> str:
    """Return the database's address without its password, for display."""
    if app_name is not None:
        return f"that of {app_name}"
    return mask_address(settings.db)


@contextlib.asynccontextmanager
async def serve_health(
    address: tuple[str, int] | None, *, running: Callable[[], int], ready: Callable[[], bool]
) -> AsyncIterator[str | None]:
    """Serve /healthz and /readyz at an address until the end of the block. Yields the URL; None without one.

    It is for processes that have no HTTP API.
    """
    if address is None:
        yield None
        return
    from aiohttp import web

    host, port = address

    async def healthz(request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "running": running()})

    async def readyz(request: web.Request) -> web.Response:
        is_ready = ready()
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise Unavailable(f"cannot listen on {host}:{port}: {error}") from error
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
