"""HTTP requests to trigger URLs: the body as a payload. Pure.

Senders differ: GitHub and Stripe send JSON, Slack sends forms, scripts send text or nothing, and `curl -d`
declares JSON as a form. So the body decides, and the content type only where the body is ambiguous.
"""

from __future__ import annotations

import codecs
import re
from typing import Final
from urllib.parse import parse_qsl

from wakeful.errors import InvalidArgument
from wakeful.signal.signals import NotJson, load_json
from wakeful.values.json_value import Json, shown

_FORM: Final = "application/x-www-form-urlencoded"
_JSON_TYPE: Final = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE)
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^\s";]+)', re.IGNORECASE)
#: The charsets of text that senders use. Others of Python are not for text of the web, and `punycode` takes
#: minutes for a body of the largest size.
_CHARSETS: Final = re.compile(
    r"utf-(8|8-sig|(16|32)(-[bl]e)?)|ascii|iso8859-\d+|cp(125\d|437|850|874|932|949)|koi8-[rtu]|mac-roman"
    r"|shift_jis|euc_(jp|kr)|iso2022_(jp|kr)|gb(k|2312|18030)|big5|tis-620"
)
#: The most fields of a form.
_MAX_FIELDS: Final = 1_000


def read_body(content_type: str, body: bytes) -> object:
    """Return the payload of a request: JSON, a form as an object, or text; None for an empty body.

    NotJson: the content type says that it is JSON, and it is not. InvalidArgument: it is not text.

    >>> read_body("application/x-www-form-urlencoded", b'{"to": "me"}')
    {'to': 'me'}
    >>> read_body("application/x-www-form-urlencoded", b"text=hi+there&tag=a&tag=b")
    {'text': 'hi there', 'tag': ['a', 'b']}
    >>> read_body("text/plain", b"deployed"), read_body("", b"")
    ('deployed', None)
    """
    if not body.strip():
        return None
    if _JSON_TYPE.fullmatch(content_type):
        return load_json(body, "the body")
    text = _decoded(content_type, body)
    try:
        return load_json(text, "the body")
    except NotJson:
        pass
    if content_type.partition(";")[0].strip().lower() == _FORM and "=" in text:
        return _form(text)
    return text


def _decoded(content_type: str, body: bytes) -> str:
    found = _CHARSET.search(content_type)
    charset = found[1] if found else "utf-8"
    try:
        if not _CHARSETS.fullmatch(codecs.lookup(charset).name):
            raise LookupError(charset)
        return body.decode(charset)
    except LookupError:
        raise InvalidArgument(f"the charset {shown(charset)} is unknown; send the body in UTF-8") from None
    except UnicodeError:
        raise InvalidArgument(
            f"the body is not text in {charset}; send JSON, a form or text, and binary data as base64"
        ) from None


def _form(text: str) -> dict[str, Json]:
    """Return the fields of a form. A field that occurs several times has a list."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidArgument(f"the form has more than {_MAX_FIELDS} fields; send JSON") from None
    found: dict[str, list[Json]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
