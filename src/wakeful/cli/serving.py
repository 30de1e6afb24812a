"""What `wakeful serve` does in one process, alone or as one of several."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from wakeful.cli.dev_mode import NEW_DATABASE, DevMode
from wakeful.cli.local_key import LocalKey, local_key, shown_link, sign_in_url
from wakeful.cli.output import Output
from wakeful.cli.serve_options import shown_database, wakeful_command
from wakeful.cli.show.tables import page
from wakeful.client.api_key_file import key_file
from wakeful.client.rest.client import DEFAULT_URL
from wakeful.errors import WakefulError
from wakeful.settings import Settings

if TYPE_CHECKING:
    from wakeful.app import Wakeful
    from wakeful.server.processes.child import Child


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

    def started(url: str, scheduler: Wakeful) -> None:
        if prepared is None and child is None:
            greet(out, url, options, done)
        if dev_mode is not None and (child is None or child.number == 1):
            stack.enter_context(dev_mode.printing(scheduler))

    first = child is None or child.first
    opened = None if dev_mode is None or not first else dev_mode.prepare
    with stack:
        await run(
            settings,
            app=scheduler,
            opened=opened,
            prepare=prepare if first else None,
            started=started,
            child=child,
        )


def greet(out: Output, url: str, options: ServeOptions, done: Prepared) -> None:
    """Print the server's URL, database and key, and commands to try."""
    wakeful = wakeful_command()
    if url != DEFAULT_URL:
        wakeful = f"WAKEFUL_URL={url} {wakeful}"
    settings = options.settings
    db_name = shown_database(settings, options.app_name)
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
        *shown_link(done.sign_in_link),
        *([Text(NEW_DATABASE, "green")] if done.echoes else []),
        Text("try", "dim"),
        Text(f"  {wakeful} add hello --schedule 'every 10s' --message 'good morning'"),
        Text(f"  {wakeful} run hello --wait"),
        Text(f"  {wakeful} list"),
        Text(f"  {wakeful} open"),
        Text(f"  {url}/docs for the HTTP API; Ctrl-C stops", "dim"),
        *([Text("finished runs:", "dim")] if prints else []),
    )
