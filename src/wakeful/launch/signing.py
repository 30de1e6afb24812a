"""The two signatures of a webhook: both HMAC-SHA256, both keyed with the secret's bytes.

`x-wakeful-signature` is the hex digest of the body alone: one line of code in any language. It says who
sent the body, but not when. `webhook-signature` is that of Standard Webhooks: it covers the message's id
and the time as well, so that what somebody overheard cannot be sent again later.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence


def hex_signature(secret: bytes, body: bytes) -> str:
    """`x-wakeful-signature`: the hex HMAC-SHA256 of the body.

    >>> hex_signature(b"key", b"The quick brown fox jumps over the lazy dog")[:16]
    'f7bc83f430538424'
    """
    return hmac.digest(secret, body, "sha256").hex()


def standard_signature(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """`webhook-signature`: one `v1,…` for each secret, the newest first; two while a secret rotates.

    >>> standard_signature([b"new", b"old"], "id", 1741392000, b"{}").count("v1,")
    2
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join(f"v1,{b64encode(hmac.digest(secret, signed, 'sha256')).decode()}" for secret in secrets)
