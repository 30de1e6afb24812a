"""NATS credentials by JWT: an operator, an account and a user, as `nsc` creates them."""

from __future__ import annotations

import base64
import binascii
import json
import time
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_OPERATOR: Final = 14 << 3
_ACCOUNT: Final = 0
_USER: Final = 20 << 3
_SEED: Final = 18 << 3
_UNLIMITED: Final = {"subs": -1, "data": -1, "payload": -1}


class _NKey:
    """A key pair in the encoding of NATS."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self.key = Ed25519PrivateKey.generate()
        self.public = _encoded(bytes([kind]) + self.key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        prefix = bytes([_SEED | self._kind >> 5, (self._kind & 31) << 3])
        return _encoded(prefix + self.key.private_bytes_raw())


def write_jwt_server(directory: Path) -> tuple[Path, Path]:
    """Return the configuration of a server, and the credentials file of a user that it accepts."""
    operator, account, user = _NKey(_OPERATOR), _NKey(_ACCOUNT), _NKey(_USER)
    limits = {**_UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    of_account = _jwt(operator, account, {"type": "account", "limits": limits})
    config = directory / "nats.conf"
    config.write_text(
        f"operator: {_jwt(operator, operator, {'type': 'operator'})}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {of_account} }}\n"
    )
    return config, _write_credentials(directory / "user.creds", account, user)


def _write_credentials(file: Path, account: _NKey, user: _NKey) -> Path:
    jwt = _jwt(account, user, {"type": "user", **_UNLIMITED})
    parts = {"NATS USER JWT": jwt, "USER NKEY SEED": user.seed}
    lines = [f"-----BEGIN {name}-----\n{value}\n------END {name}------\n" for name, value in parts.items()]
    file.write_text("\n".join(lines))
    return file


def _jwt(issuer: _NKey, subject: _NKey, claims: dict[str, object]) -> str:
    body = {
        "jti": subject.public,
        "iat": int(time.time()),
        "iss": issuer.public,
        "sub": subject.public,
        "name": "tests",
        "nats": {"version": 2, **claims},
    }
    signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
    return f"{signed}.{_base64(issuer.key.sign(signed.encode()))}"


def _part(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encoded(data: bytes) -> str:
    checked = data + binascii.crc_hqx(data, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")
