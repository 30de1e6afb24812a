"""The key that encrypts webhook secrets, where nobody has set one: a file beside the SQLite database.

One developer with one file has nobody to hide its secrets from who could not read the key as well: what is
kept apart is the database itself, which is copied, mailed and backed up. Whoever has several replicas, and
so a PostgreSQL, sets `WAKEFUL_SECRET_KEY` on each of them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Final

from wakeful.errors import FailedPrecondition
from wakeful.launch.secrets import SETTING, Keyring

#: What is added to the name of the database.
SUFFIX: Final = ".key"


def keyring_for(keys: str | None, database: str | None) -> Keyring:
    """The keyring of whoever has these keys, as `WAKEFUL_SECRET_KEY` has them, and this SQLite database.

    Keys that are given are what seals; a key file that was made before still opens what it sealed. Without
    any, the key file seals, and is made when it is first needed; a database in memory has its key there too.
    With neither keys nor an SQLite database (None), nothing can be sealed.

    >>> keys = keyring_for(None, ":memory:")
    >>> keys.open(keys.seal(b"secret"))
    b'secret'
    """
    if database == ":memory:":
        return Keyring.parse(keys or _new_key())
    if database is None:
        return Keyring.parse(keys)
    path = Path(f"{database}{SUFFIX}").absolute()
    if not keys:
        return FileKeyring(path)
    return Keyring.parse(f"{keys},{_read(path) or ''}")


class FileKeyring(Keyring):
    """A keyring with one key, which lies in a file. Nothing is written before something is to be sealed."""

    def __init__(self, path: Path) -> None:
        super().__init__([])
        self._path = path

    def seal(self, secret: bytes) -> bytes:
        """The secret as it may lie in a database; the file is made if it is not there."""
        if self.empty:
            self.add(_read(self._path) or _made(self._path))
        return super().seal(secret)

    def open(self, sealed: bytes) -> bytes:
        """The secret again. Another process may have made the file since we last looked."""
        if self.empty and (key := _read(self._path)):
            self.add(key)
        return super().open(sealed)


def _read(path: Path) -> str | None:
    try:
        key = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FailedPrecondition(
            f"the key of the webhook secrets cannot be read from {path}: {error}"
        ) from error
    if not key:
        raise FailedPrecondition(
            f"{path} is empty, and the webhook secrets are encrypted with what was there"
        )
    return key


def _made(path: Path) -> str:
    """The key in the file, which is new unless another process was quicker: whole, or not there at all."""
    try:
        number, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)  # for us alone to read
        try:
            with open(number, "w", encoding="ascii") as file:
                file.write(_new_key() + "\n")
                file.flush()
                os.fsync(number)
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    except OSError as error:
        raise FailedPrecondition(
            f"webhook secrets are encrypted, and their key cannot be kept in {path}: {error}; make that "
            f"possible, or set {SETTING} to a long random text"
        ) from error
    return _read(path) or ""


def _new_key() -> str:
    return b64encode(os.urandom(32)).decode()
