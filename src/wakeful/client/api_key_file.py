"""The key that `wakeful serve` leaves for this machine's command line: a file for its owner alone.

There is one for each address, because two servers on one machine have keys of their own:
`~/.config/wakeful/keys/127.0.0.1-9253`. `WAKEFUL_KEY_FILE` names another place.
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
#: What a server listens on, and what is called to reach it from the same machine.
_HERE: Final = {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "::1": "127.0.0.1"}


def key_file(url: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the key of the server at `url` lies, if it lies here.

    >>> key_file("http://localhost:9253", {"XDG_CONFIG_HOME": "/home/me/.config"}).as_posix()
    '/home/me/.config/wakeful/keys/127.0.0.1-9253'
    """
    if named := environment.get(SETTING):
        return Path(named).expanduser()
    # By its own rule, a path that is not absolute is to be ignored.
    given = Path(environment.get("XDG_CONFIG_HOME") or "")
    home = given if given.is_absolute() else Path("~/.config").expanduser()
    return home / "wakeful" / "keys" / _slug(url)


def read_key(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The key for the server at `url`, or None where there is none to be read."""
    try:
        return key_file(url, environment).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def leave_key(url: str, key: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Leave a key for the server at `url`; whole or not at all, and for nobody else to read.

    Another key that is there, of another database perhaps, is kept beside it, with `.old` to its name.
    """
    path = key_file(url, environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # for us alone to read
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
            f"the key cannot be left in {path}: {error}; name a place that can be written by {SETTING}"
        ) from error
    return path


def _slug(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host:
        raise InvalidArgument(f"'{url}' is no address of a server; give one such as http://127.0.0.1:9253")
    port = port or (443 if parts.scheme == "https" else 80)
    return re.sub(r"[^A-Za-z0-9.-]", "_", f"{_HERE.get(host, host)}-{port}")
