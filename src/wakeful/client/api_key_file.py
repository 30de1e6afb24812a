"""The file in which `wakeful serve` stores an API key for the clients on this machine.

There is one file per address, because two servers on one machine have different keys:
`~/.config/wakeful/keys/127.0.0.1-9253`. `WAKEFUL_KEY_FILE` names another path.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from wakeful.errors import FailedPrecondition, InvalidArgument

SETTING: Final = "WAKEFUL_KEY_FILE"
#: Addresses that a server listens on, and the address to reach it from the same machine.
_LOCAL_ADDRESSES: Final = {
    "localhost": "127.0.0.1",
    "0.0.0.0": "127.0.0.1",
    "::": "127.0.0.1",
    "::1": "127.0.0.1",
}


def key_file(url: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the key file for the server at `url`.

    >>> key_file("http://localhost:9253", {"XDG_CONFIG_HOME": "/home/me/.config"}).as_posix()
    '/home/me/.config/wakeful/keys/127.0.0.1-9253'
    """
    if named := environment.get(SETTING):
        return Path(named).expanduser()
    # The XDG specification says to ignore relative paths.
    given = Path(environment.get("XDG_CONFIG_HOME") or "")
    home = given if given.is_absolute() else Path("~/.config").expanduser()
    return home / "wakeful" / "keys" / _slug(url)


def read_key(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the key for the server at `url`, or None if there is no readable key file."""
    try:
        return key_file(url, environment).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def store_key(url: str, key: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Store a key for the server at `url`, atomically and readable only by its owner.

    An existing key, perhaps of another database, is renamed with the suffix `.old`.
    """
    path = key_file(url, environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, draft = tempfile.mkstemp(
            prefix=f"{path.name}.", dir=path.parent
        )  # readable only by its owner
        try:
            with open(number, "w", encoding="utf-8") as file:
                file.write(key + "\n")
            with contextlib.suppress(FileNotFoundError):
                path.replace(path.with_name(f"{path.name}.old"))
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as error:
        raise FailedPrecondition(
            f"the key cannot be stored in {path}: {error}; set {SETTING} to a path that can be written"
        ) from error
    return path


def _slug(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host:
        raise InvalidArgument(
            f"'{url}' is not the address of a server; give one such as http://127.0.0.1:9253"
        )
    port = port or (443 if parts.scheme == "https" else 80)
    return re.sub(r"[^A-Za-z0-9.-]", "_", f"{_LOCAL_ADDRESSES.get(host, host)}-{port}")
