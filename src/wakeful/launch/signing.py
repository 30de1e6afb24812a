"""The two signatures of a webhook: both HMAC-SHA256, keyed with the bytes of the secret.

`x-wakeful-signature` is the hex digest of the body: one line of code in any language. It proves the sender,
not the time. `webhook-signature` is the one of Standard Webhooks: it also covers the message id and the
time, so that a recorded request cannot be replayed later.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence


def hex_signature(secret: bytes, body: bytes) -> str:
    """Return `x-wakeful-signature`: the hex HMAC-SHA256 of the body.

    >>> hex_signature(b"key", b"The quick brown fox jumps over the lazy dog")[:16]
    'f7bc83f430538424'
    """
    return hmac.digest(secret, body, "sha256").hex()


def standard_signature(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Return `webhook-signature`: one `v1,…` per secret, newest first; two during a rotation.

    >>> standard_signature([b"new", b"old"], "id", 1741392000, b"{}").count("v1,")
    2
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join(f"v1,{b64encode(hmac.digest(secret, signed, 'sha256')).decode()}" for secret in secrets)
