"""Webhook secrets: creation, text form and encryption; the signatures that they make.

A secret is 32 random bytes, shown as `whsec_` and base64. It is stored encrypted (AES-256-GCM) with a key
derived from `WAKEFUL_SECRET_KEY`, so that a copy of the database is not enough to sign. To change that key,
set the new and the old one, separated by a comma.

If `WAKEFUL_SECRET_KEY` is not set, a key file beside an SQLite database takes its place. It protects copies
and backups of the database. With several replicas, and so PostgreSQL, the operator sets
`WAKEFUL_SECRET_KEY` on each of them.

Both signatures are HMAC-SHA256, keyed with the bytes of the secret. `x-wakeful-signature` is the hex digest
of the body: one line of code in any language. It proves the sender, not the time. `webhook-signature` is
the one of Standard Webhooks: it also covers the message id and the time, so that a recorded request cannot
be replayed later.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.launch.port import Launch
from wakeful.values.clock import Clock

if TYPE_CHECKING:  # programs without webhooks do not import it
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: The setting of the encryption keys.
SETTING: Final = "WAKEFUL_SECRET_KEY"
PREFIX: Final = "whsec_"
#: How long the old secret signs too after a rotation.
ROTATION_MS: Final = 24 * 3_600_000
#: How far the time of a signature may be from the time of its receiver.
MAX_SKEW_MS: Final = 300_000

_SIZE: Final = 32
_NONCE: Final = 12
_FORMAT: Final = b"\x01"
_CACHE_SIZE: Final = 100_000
#: The suffix of the key file after the name of the database.
SUFFIX: Final = ".key"
#: The block of SHA-256 in bytes, and the two keys of HMAC as translations of the secret (RFC 2104).
_BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def new_secret() -> bytes:
    """Return a new random secret."""
    return os.urandom(_SIZE)


def format_secret(secret: bytes) -> str:
    """Return the text form of a secret.

    >>> format_secret(b"k" * 32)
    'whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s='
    """
    return PREFIX + b64encode(secret).decode()


def read_secret(text: str) -> bytes:
    """Return the secret of a text form. Raises InvalidArgument.

    >>> read_secret(format_secret(b"k" * 32)) == b"k" * 32
    True
    """
    try:
        secret = b64decode(text.removeprefix(PREFIX), validate=True)
    except ValueError:
        secret = b""
    if not text.startswith(PREFIX) or not 24 <= len(secret) <= 64:
        raise InvalidArgument(f"a webhook secret is '{PREFIX}' and the base64 of 24 to 64 random bytes")
    return secret


class Keyring:
    """Encrypts and decrypts secrets. The first key encrypts; every key decrypts.

    >>> keys = Keyring(["correct horse battery staple"])
    >>> keys.open(keys.seal(b"secret"))
    b'secret'
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key for key in keys if key]
        self._derived: list[AESGCM] = []
        self._opened: OrderedDict[bytes, bytes] = OrderedDict()

    @classmethod
    def parse(cls, text: str | None) -> Keyring:
        """Return the keyring of a setting: one key, or several separated by commas, the newest first."""
        return cls([key.strip() for key in (text or "").split(",")])

    def add(self, key: str) -> None:
        """Add a key. It decrypts, and encrypts if it is the first."""
        self._keys.append(key)

    def seal(self, secret: bytes) -> bytes:
        """Return the encrypted secret. Raises FailedPrecondition without a key."""
        nonce = os.urandom(_NONCE)
        return _FORMAT + nonce + self._ciphers()[0].encrypt(nonce, secret, _FORMAT)

    def open(self, sealed: bytes) -> bytes:
        """Return the decrypted secret. It is cached.

        Raises FailedPrecondition if there is no key, or none that encrypted it.
        """
        known = self._opened.get(sealed)
        if known is not None:
            return known
        for cipher in self._ciphers():
            secret = _decrypt_with(cipher, sealed)
            if secret is not None:
                self._opened[sealed] = secret
                if len(self._opened) > _CACHE_SIZE:
                    self._opened.popitem(last=False)
                return secret
        raise FailedPrecondition(
            f"a webhook secret cannot be decrypted: it was encrypted with another key; add that key to "
            f"{SETTING} after a comma, or rotate the job's secret"
        )

    @property
    def empty(self) -> bool:
        """Whether there is no key."""
        return not self._keys

    def _ciphers(self) -> list[AESGCM]:
        """Return a cipher for each key. They are made on first use, and `cryptography` is imported then."""
        if self.empty:
            raise FailedPrecondition(_no_key())
        if len(self._derived) < len(self._keys):
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._derived += [AESGCM(_derive_key(key)) for key in self._keys[len(self._derived) :]]
        return self._derived


class SecretSource(Protocol):
    """Returns the secrets that sign a run."""

    def find_secrets(self, run: Launch) -> tuple[bytes, ...]:
        """Return the secrets, newest first; none for a run that is not signed, such as one without a job."""
        ...


class RunSecrets:
    """Decrypts the secrets of a run, which were read with its claim.

    A run that was claimed just before a rotation is signed with the old secret only. A receiver accepts the
    old secret for `ROTATION_MS`.
    """

    def __init__(self, keyring: Keyring, clock: Clock) -> None:
        self._keyring = keyring
        self._clock = clock

    def find_secrets(self, run: Launch) -> tuple[bytes, ...]:
        """Return the secret of the job, and the old one during a rotation. Raises FailedPrecondition."""
        sealed = run.secrets
        if sealed is None:
            return ()
        secret = self._keyring.open(sealed.secret)
        if sealed.old_secret is None or (sealed.old_secret_until_ms or 0) <= self._clock.now_ms():
            return (secret,)
        return (secret, self._keyring.open(sealed.old_secret))


def _derive_key(key: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"wakeful webhook secrets")
    return hkdf.derive(key.encode())


def _decrypt_with(cipher: AESGCM, sealed: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    start = len(_FORMAT) + _NONCE
    if not sealed.startswith(_FORMAT) or len(sealed) <= start:
        return None
    try:
        return cipher.decrypt(sealed[len(_FORMAT) : start], sealed[start:], _FORMAT)
    except InvalidTag:
        return None


def _no_key() -> str:
    return (
        f"{SETTING} is not set, and webhook secrets are encrypted with it; set it to a long random text, "
        "such as the output of `openssl rand -base64 32`, equal on every replica"
    )


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


def hmac_sha256(secret: bytes, message: bytes) -> bytes:
    """Return the HMAC-SHA256 of a message.

    `hmac.digest` takes three times as long and releases the interpreter lock each time, which other threads
    then hold for milliseconds.

    >>> hmac_sha256(b"key", b"The quick brown fox jumps over the lazy dog").hex()[:16]
    'f7bc83f430538424'
    """
    key = (secret if len(secret) <= _BLOCK else sha256(secret).digest()).ljust(_BLOCK, b"\0")
    return sha256(key.translate(_OUTER) + sha256(key.translate(_INNER) + message).digest()).digest()


def hex_signature(secret: bytes, body: bytes) -> str:
    """Return `x-wakeful-signature`: the hex HMAC-SHA256 of the body.

    >>> hex_signature(b"key", b"The quick brown fox jumps over the lazy dog")[:16]
    'f7bc83f430538424'
    """
    return hmac_sha256(secret, body).hex()


def standard_signature(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return `webhook-signature`: one `v1,…` per secret, newest first; two during a rotation.

    >>> standard_signature([b"new", b"old"], "id", 1741392000, b"{}").count("v1,")
    2
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join([f"v1,{b64encode(hmac_sha256(secret, signed)).decode()}" for secret in secrets])


def is_signed(
    secrets: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_ms: int, skew_ms: int = MAX_SKEW_MS
) -> bool:
    """Return whether Standard Webhooks signed a request with one of these secrets, at most `skew_ms` ago.

    The names of the headers are in lower case. A receiver that stores the ids refuses a repetition of them.

    >>> signature = standard_signature([b"k" * 32], "id", 1_741_392_000, b"{}")
    >>> sent = {"webhook-id": "id", "webhook-timestamp": "1741392000", "webhook-signature": signature}
    >>> is_signed([b"k" * 32], sent, b"{}", 1_741_392_000_000)
    True
    >>> is_signed([b"k" * 32], sent, b"[]", 1_741_392_000_000)
    False
    >>> is_signed([b"k" * 32], sent, b"{}", 1_741_392_301_000)
    False
    """
    identity, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not identity or not identity.isascii() or not re.fullmatch("[0-9]{1,12}", timestamp):
        return False
    if abs(now_ms - int(timestamp) * 1000) > skew_ms:
        return False
    given = headers.get("webhook-signature", "").encode("utf-8", "replace").split(b" ")
    expected = [standard_signature([secret], identity, int(timestamp), body).encode() for secret in secrets]
    return any(compare_digest(each, one) for each in given for one in expected)
