"""What an error of an endpoint means for the attempt. Pure."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from wakeful.launch.chat.keys import setting
from wakeful.launch.chat.request import Dialect, without_tools
from wakeful.launch.chat.response import EndpointError
from wakeful.launch.port import truncate
from wakeful.run.outcome import Failed

#: Reasons of failed attempts.
CONTEXT_LENGTH: Final = "context_length"
EMPTY_ANSWER: Final = "empty_answer"
REFUSED: Final = "refused"
CONTENT_FILTER: Final = "content_filter"
ANSWER_LENGTH: Final = "answer_length"
TOO_MANY_STEPS: Final = "max_steps"
CHAT_KEY: Final = "chat_key"

#: Statuses that a retry may change, besides 5xx.
_RETRIED: Final = frozenset({408, 409, 421, 423, 425, 429})
_OVERFLOW_CODES: Final = ("context_length", "context_window", "exceed_context_size", "prompt_too_long")
_OVERFLOW: Final = re.compile(
    r"context[ _-]?(length|window|size)|maximum (context|prompt|input) length|reduce the length"
    r"|(prompt|input|request) (is )?too (long|many tokens)|too many (input )?tokens|tokens? exceeds?"
    r"|exceeds? the (maximum|limit|max)\b.*\btokens?|longer than the (maximum|model)",
    re.IGNORECASE,
)
#: Statuses with which endpoints report an overflow; None: the error had none.
_OVERFLOW_STATUSES: Final = frozenset({None, 400, 413, 422, 500})
_RATE: Final = re.compile(r"per (minute|day|hour|second)|rate.?limit|\b[TR]P[MD]\b", re.IGNORECASE)
_NO_TOOLS: Final = re.compile(
    r"not support(ed)?.{0,20}\b(tool|function)|\b(tool|function)[ _-]?(use|call|calling|choice|s)?\b.{0,40}"
    r"(not supported|unsupported|not enabled|requires --)|support tool use",
    re.IGNORECASE,
)


def is_overflow(error: EndpointError) -> bool:
    """Return whether the request was larger than the context window of the model.

    >>> is_overflow(EndpointError(400, "This model's maximum context length is 8192 tokens."))
    True
    >>> is_overflow(EndpointError(429, "Request too large: tokens per minute exceeded"))
    False
    """
    if error.status not in _OVERFLOW_STATUSES:
        return False
    if any(code in error.code for code in _OVERFLOW_CODES):
        return True
    return bool(_OVERFLOW.search(error.message)) and not _RATE.search(error.message)


def adapted(dialect: Dialect, error: EndpointError, *, tools: bool) -> Dialect | None:
    """Return the dialect that this error asks for; None if another one would not help.

    >>> error = EndpointError(400, "Unsupported parameter: 'max_tokens'", param="max_tokens")
    >>> adapted(Dialect(), error, tools=False)
    Dialect(max_tokens='max_completion_tokens', tools=True)
    """
    if error.status not in (None, 400, 404, 422, 500, 501):
        return None
    about = f"{error.code} {error.message}".lower()
    renamed = "max_completion_tokens" in about or ("max_tokens" in about and "unsupported" in about)
    if renamed and dialect.max_tokens == "max_tokens":
        return Dialect("max_completion_tokens", dialect.tools)
    if tools and dialect.tools and _NO_TOOLS.search(error.message):
        return without_tools(dialect)
    return None


def failed(error: EndpointError, *, key: str | None, retry_after_ms: int | None = None) -> Failed:
    """Return the failure: permanent where only a change of the job or of the settings helps."""
    status, sentence = error.status, error.message
    if is_overflow(error):
        return Failed(
            truncate(
                f"the message does not fit into the context window of the model: {sentence}; shorten it, or "
                "use a model with a larger window"
            ),
            permanent=True,
            reason=CONTEXT_LENGTH,
            response_code=status,
        )
    if status is None:
        return Failed(truncate(f"the endpoint sent an unusable response: {sentence}"), reason="bad_response")
    text = f"{_phrase(status)}: {sentence}" if sentence else _phrase(status)
    if status in (401, 403):
        what = (
            f"check {setting('KEY', key)}"
            if key
            else "the target has no `key`; name one that the operator sets"
        )
        text = f"{text}; {what}"
    elif status == 404:
        text = f"{text}; check the url and the model of the target"
    elif 300 <= status < 400:
        text = f"{text}; redirects are not followed: set the final url"
    permanent = status < 500 and status not in _RETRIED
    return Failed(
        truncate(text),
        permanent=permanent,
        retry_after_ms=retry_after_ms,
        reason="http",
        response_code=status,
    )


def _phrase(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"
