"""NATS credentials files: the user's JWT, and the key that signs the server's challenge.

The key is an Ed25519 seed in the encoding of NATS: base32 of two prefix bytes, 32 bytes and a CRC-16.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wakeful.errors import InvalidArgument

_PART: Final = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*(\S+)\s*-{3,}END ", re.MULTILINE)
_LENGTH: Final = 36


class Credentials(NamedTuple):
    """The credentials of a NATS user."""

    jwt: str
    key: Ed25519PrivateKey

    def sign(self, nonce: str) -> bytes:
        """Return the signature of the server's challenge, in base64."""
        return base64.b64encode(self.key.sign(nonce.encode()))


def read_credentials(path: str) -> Credentials:
    """Read a credentials file. Raises InvalidArgument, never with its content."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"WAKEFUL_NATS_CREDS: {path} cannot be read: {type(error).__name__}") from error
    parts = dict(_PART.findall(text))
    jwt, seed = parts.get("NATS USER JWT"), parts.get("USER NKEY SEED")
    if jwt is None or seed is None:
        raise InvalidArgument(f"WAKEFUL_NATS_CREDS: {path} is not a NATS credentials file")
    return Credentials(jwt, Ed25519PrivateKey.from_private_bytes(_seed(path, seed)))


def _seed(path: str, text: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _LENGTH or int.from_bytes(raw[-2:], "little") != binascii.crc_hqx(raw[:-2], 0):
        raise InvalidArgument(f"WAKEFUL_NATS_CREDS: the key in {path} is not valid")
    return raw[2:-2]
