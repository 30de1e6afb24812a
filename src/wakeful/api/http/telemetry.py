"""Turns off the telemetry of FastAPI.

Its spans contain paths and queries of requests, which may contain credentials. The engine records what a
request triggers (`engine.tracing`), and `/metrics` counts requests.
"""

from __future__ import annotations

from typing import Any, Final

#: Arguments of `FastAPI`. Versions without telemetry of their own ignore them.
NO_TELEMETRY: Final[dict[str, Any]] = {
    "telemetry": {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
}
