"""The key file beside an SQLite database, which encrypts webhook secrets if `WAKEFUL_SECRET_KEY` is not set.

It protects copies and backups of the database. With several replicas, and so PostgreSQL, the operator sets
`WAKEFUL_SECRET_KEY` on each of them.
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

#: The suffix of the key file after the name of the database.
SUFFIX: Final = ".key"


def keyring_for(keys: str | None, database: str | None) -> Keyring:
    """Return the keyring for these keys (`WAKEFUL_SECRET_KEY`) and this SQLite database.

    The given keys encrypt; an existing key file still decrypts. Without keys, the key file encrypts and is
    created on first use; a database in memory has its key in memory. Without keys and SQLite database (None),
    nothing can be encrypted.

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
    """A keyring with one key, in a file that is created when the first secret is encrypted."""

    def __init__(self, path: Path) -> None:
        super().__init__([])
        self._path = path

    def seal(self, secret: bytes) -> bytes:
        """Return the encrypted secret. Creates the file if it does not exist."""
        if self.empty:
            self.add(_read(self._path) or _create(self._path))
        return super().seal(secret)

    def open(self, sealed: bytes) -> bytes:
        """Return the decrypted secret. Another process may have created the file meanwhile."""
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
            f"the encryption key of webhook secrets cannot be read from {path}: {error}"
        ) from error
    if not key:
        raise FailedPrecondition(
            f"{path} is empty, and webhook secrets are encrypted with the key that it had"
        )
    return key


def _create(path: Path) -> str:
    """Create the key file atomically, unless another process does so first. Returns its key."""
    try:
        number, draft = tempfile.mkstemp(
            prefix=f"{path.name}.", dir=path.parent
        )  # readable by this user only
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
            f"the encryption key of webhook secrets cannot be written to {path}: {error}; make that "
            f"possible, or set {SETTING} to a long random text"
        ) from error
    return _read(path) or ""


def _new_key() -> str:
    return b64encode(os.urandom(32)).decode()
