"""The key of this machine's command line, and the link that signs in to the dashboard with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from wakeful.client.api_key_file import key_file, read_key, store_key
from wakeful.errors import Unauthenticated, WakefulError

if TYPE_CHECKING:
    from wakeful.app import Wakeful


class LocalKey(NamedTuple):
    """Where this machine's CLI finds its key."""

    text: str
    #: the key; None: there is no valid one
    key: str | None


async def sign_in_url(url: str, scheduler: Wakeful, key: str) -> str:
    """Return a one-time link that signs in to the dashboard with this key."""
    services = scheduler.services
    link = await services.web_sessions.create_link(await services.keys.authenticate(key))
    return f"{url}/sign-in#{link.token}"


async def local_key(url: str, scheduler: Wakeful, new_key: bool, admin_key: str | None) -> LocalKey:
    """Return where this machine's CLI finds its key, and the key if it is valid."""
    from wakeful.service.auth.access import LOCAL

    keys = scheduler.services.keys
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


def shown_link(link: str | None) -> list[Text]:
    """Return the lines that show a sign-in link, if there is one."""
    if link is None:
        return []
    return [Text("dashboard (this link works once, for 5 minutes):", "dim"), Text(f"  {link}")]
