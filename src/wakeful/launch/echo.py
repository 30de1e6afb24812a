"""Echo targets: the run succeeds at once, and its output is what it carries. For trying out schedules.

    {"kind": "echo"}

The output is the message of the payload if it has nothing else, otherwise the payload as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.errors import InvalidArgument
from wakeful.launch.port import DEFAULT_TIMEOUT_MS, Launch, Launcher, truncate
from wakeful.run.outcome import Outcome, Succeeded
from wakeful.values.json_value import Json

#: The whole target.
ECHO: Final[Mapping[str, Json]] = {"kind": "echo"}


class EchoLauncher(Launcher):
    """Returns what a run carries as its output."""

    kind = "echo"
    default_timeout_ms = DEFAULT_TIMEOUT_MS

    def check(self, target: Mapping[str, Json]) -> None:
        """Raise InvalidArgument for an unknown field.

        >>> EchoLauncher().check({"kind": "echo", "text": "hello"})
        Traceback (most recent call last):
        wakeful.errors.InvalidArgument: target: an echo target has no field 'text'; set a message or a payload
        """
        unknown = sorted(target.keys() - ECHO.keys())
        if unknown:
            raise InvalidArgument(
                f"target: an echo target has no field '{unknown[0][:64]}'; set a message or a payload"
            )

    async def start(self, run: Launch) -> Outcome:
        """Succeed with the message or the payload as output."""
        if run.payload_text is None:
            return Succeeded()
        alone = run.message is not None and isinstance(run.payload, dict) and len(run.payload) == 1
        return Succeeded(truncate(run.message if alone and run.message is not None else run.payload_text))
