"""Removes credentials from what is logged: a safety net, because no event should contain one.

Three rules: fields with the name of a credential, text that has the form of one, and the exact values that
the operator has set (`add_secrets`). Payloads and outputs of runs are never logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from wakeful.settings import Settings

MASK: Final = "***"
#: A shorter secret is not searched for: it could be part of ordinary text.
_SHORTEST: Final = 6
_DEEPEST: Final = 20
_FIELDS: Final = frozenset(
    "authorization body cookie headers output password payload secret signature token api_key".split()
)
#: A text of users is searched in linear time: no two beginnings of a form search the same characters.
_FORMS: Final = re.compile(
    r"""
      (?P<key>w[aclkr]_)[A-Za-z0-9_-]{16,}
    | (?P<webhook>whsec_)[A-Za-z0-9+/=_-]{8,}
    | (?P<trigger>\bhook_)[A-Za-z0-9_-]{43}
    | (?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.[A-Za-z0-9_-])
        (?P<jwt>[A-Za-z0-9_-]*?eyJ)[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?
    | (?P<scheme>\b(?:bearer|basic|digest)\s+)(?=[A-Za-z0-9._~+/=-]*[0-9._~+/=-])[A-Za-z0-9._~+/=-]{8,}
    | (?P<header>\b(?:proxy-)?authorization['"]?\s*[:=]\s*['"]?)(?:(?:bearer|basic|digest)\s+)?[^\s'",}]+
    | (?P<user>://)[^\s/?\#'"]+(?=@)
    | (?P<parameter>[?&;\s'"(]
        (?:access_?token|api_?key|key|passwd|password|pwd|secret|sig|signature|token)=)[^\s&;'")]+
    | (?P<hook>/hooks/)[A-Za-z0-9_-]{8,}
    """,
    re.IGNORECASE | re.VERBOSE,
)

_exact: re.Pattern[str] | None = None
_secrets: set[str] = set()


def add_secrets(values: Iterable[str | None]) -> None:
    """Mask these values wherever they appear in the logs of this process."""
    global _exact
    _secrets.update(value for value in values if value and len(value) >= _SHORTEST)
    longest_first = sorted(_secrets, key=len, reverse=True)
    _exact = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def setting_secrets(settings: Settings) -> list[str | None]:
    """Return the values of the settings that are credentials, and their parts."""
    urls = [
        settings.db,
        settings.ping_url or "",
        settings.jwks_url or "",
        *settings.nats_url,
        settings.celery_broker or "",
        settings.celery_results or "",
    ]
    return [
        *(settings.secret_key or "").split(","),
        settings.admin_key,
        settings.jwt_secret,
        settings.oidc_client_secret,
        settings.metrics_key,
        *settings.chat_keys.values(),
        *(server.key for server in settings.event_servers.values()),
        *(match[1] for url in urls for match in re.finditer(r"://[^\s/@]*?:([^\s/]+)@", url)),
        *settings.channels.values(),
        # A channel's URL is made of credentials: `slack://TOKEN/TOKEN/TOKEN`.
        *(
            part
            for url in settings.channels.values()
            for part in re.split(r"[/:@?&=]+", url)
            if len(part) >= 16
        ),
    ]


def redact(text: str) -> str:
    """Return the text with its credentials masked.

    >>> redact("GET postgresql://me:hunter2@db/wakeful failed, Authorization: Bearer abc.def-123")
    'GET postgresql://***@db/wakeful failed, Authorization: ***'
    >>> redact("token: it is missing; write ?token=… or a bearer token")
    'token: it is missing; write ?token=*** or a bearer token'
    """
    if _exact is not None:
        text = _exact.sub(MASK, text)
    return _FORMS.sub(_mask_match, text)


def _mask_match(match: re.Match[str]) -> str:
    kept = match[match.lastgroup] if match.lastgroup else ""
    # What precedes a JWT in the same word may have another form.
    return f"{_FORMS.sub(_mask_match, kept) if match.lastgroup == 'jwt' else kept}{MASK}"


def redact_fields(fields: Mapping[str, Any], within: tuple[object, ...] = ()) -> dict[str, Any]:
    """Return the fields with credentials masked, by name and by form, also inside lists and objects.

    Of objects that contain themselves, or are nested deeply, what is inside is left out. `within` are the
    objects around the fields.

    >>> redact_fields({"token": "abc", "runs": ["r1", "wk_0123456789abcdefg"], "attempt": 2})
    {'token': '***', 'runs': ['r1', 'wk_***'], 'attempt': 2}
    """
    return {key: MASK if key.lower() in _FIELDS else _value(value, within) for key, value in fields.items()}


def _value(value: object, within: tuple[object, ...]) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if len(within) >= _DEEPEST or any(value is each for each in within):
            return "…"
        if isinstance(value, Mapping):
            return redact_fields({_text(key): each for key, each in value.items()}, (*within, value))
        return [_value(each, (*within, value)) for each in value]
    return value if isinstance(value, bool | int | float | None) else redact(_text(value))


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # of a class of the program: what it does must not depend on its logs
        return object.__repr__(value)
