"""The names of instances: any text, and how an address or a source of signals has it."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import quote

from wakeful.errors import InvalidArgument

#: The most characters of a name.
MAX_INSTANCE: Final = 255
#: What no name has: control characters, line separators and lone surrogates.
REFUSED_CHARACTERS: Final = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff"
_REFUSED: Final = re.compile(f"[{REFUSED_CHARACTERS}]")
#: The first character of a name in base64.
_MARK: Final = "~"
#: Names that clients and proxies change in a path although they are percent-encoded.
_UNSAFE: Final = re.compile(r"[/\\%]|^\.+$|^~")
#: The longest name in a source: `MAX_SOURCE` has room for it, and a key of an index for the source.
_LONGEST_PART: Final = 600


def check_instance(name: object, what: str = "instance") -> str:
    """Return the name of an instance, composed as Unicode recommends (NFC); InvalidArgument if it is none.

    >>> check_instance("customer 7/eu"), check_instance("e\\u0301") == "\\xe9"
    ('customer 7/eu', True)
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{what}: give the name of an instance, such as 'eu' or 'customer/7'")
    if not name.isascii():
        if _REFUSED.search(name) is None:
            name = unicodedata.normalize("NFC", name)
    elif name.isprintable() and len(name) <= MAX_INSTANCE:
        return name
    if len(name) > MAX_INSTANCE:
        raise InvalidArgument(
            f"{what}: the name has {len(name)} characters; it may have {MAX_INSTANCE}: use an id, or a digest"
        )
    refused = _REFUSED.search(name)
    if refused is not None:
        raise InvalidArgument(
            f"{what}: the name has the control character U+{ord(refused[0]):04X}; remove it"
        )
    return name


def instance_to_path(name: str) -> str:
    """Return the name for the path of an address; the caller percent-encodes it.

    A name that clients or proxies would change, such as `..` or `a/b`, is `~` and its UTF-8 in base64url.

    >>> instance_to_path("eu"), instance_to_path("a b"), instance_to_path(".."), instance_to_path("a/b")
    ('eu', 'a b', '~Li4', '~YS9i')
    """
    if _UNSAFE.search(name) is None:
        return name
    return _MARK + urlsafe_b64encode(name.encode(errors="surrogatepass")).decode().rstrip("=")


def instance_from_path(part: str) -> str:
    """Return the name that a path has. What is not `~` and base64url of a name is the name itself.

    >>> instance_from_path("~Li4"), instance_from_path("a/b"), instance_from_path("~me")
    ('..', 'a/b', '~me')
    """
    if not part.startswith(_MARK):
        return part
    encoded = part[1:]
    try:
        name = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        return part
    return name if name and urlsafe_b64encode(name.encode()).decode().rstrip("=") == encoded else part


def instance_to_source(name: str) -> str:
    """Return the name for the source of a signal, which is a URI of limited length.

    >>> instance_to_source("eu"), instance_to_source("a b")
    ('eu', 'a%20b')
    """
    part = quote(name, safe="")
    return part if len(part) <= _LONGEST_PART else hashlib.sha256(name.encode()).hexdigest()
