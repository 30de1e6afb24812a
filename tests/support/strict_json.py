"""JSON as the parsers of other languages read it, for stand-ins: Python's accepts more than RFC 8259."""

from __future__ import annotations

import json
from typing import Any


def strict_json(body: bytes) -> Any:
    """Return a value. Raises ValueError for NaN, infinities, half characters, and text that is not UTF-8."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    value = json.loads(body.decode("utf-8"), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be encoded
    return value
