"""Sign-in links and sessions as JSON."""

from __future__ import annotations

from wakeful.model.codec import JsonObject
from wakeful.service.auth.web_sessions import SignInLink
from wakeful.service.row_codec import instant
from wakeful.store.sql.web_sessions import WebSessionRow


def serialize_sign_in_link(link: SignInLink, base_url: str) -> JsonObject:
    """Return a new sign-in link. The token is in the fragment, which browsers send to no server."""
    return {"url": f"{base_url}/sign-in#{link.token}", "expiresAt": instant(link.expires_ms)}


def serialize_web_session(row: WebSessionRow) -> JsonObject:
    """Return a sign-in session."""
    return {
        "id": row.id,
        "keyId": row.key_id,
        "createdAt": instant(row.created_ms),
        "seenAt": instant(row.seen_ms),
        "expiresAt": instant(row.expires_ms),
        "address": row.address,
    }
