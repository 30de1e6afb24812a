"""What `wakeful serve --dev` does for a first try: the target `echo`, and finished runs on the console."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from wakeful.cli.output import Output
from wakeful.cli.show.runs import event_line
from wakeful.cli.times import local_zone
from wakeful.client.types import EventShape
from wakeful.errors import Unavailable

if TYPE_CHECKING:
    from wakeful.app import Wakeful

#: How long one wait for events lasts.
_WAIT_S: Final = 60.0
_AFTER_ERROR_S: Final = 1.0
#: The logger of HTTP requests.
_REQUESTS: Final = "wakeful.http"
NEW_DATABASE: Final = (
    "a new database: agent default has the target echo, so its runs succeed at once and return their message"
)


class DevMode:
    """Gives the agent `default` of a new database the target `echo`, and prints the runs that finish."""

    def __init__(self, out: Output, *, prints: bool) -> None:
        self._out = out
        #: whether it prints finished runs: JSON output and JSON logs stay free of other lines
        self.prints = prints and not out.as_json
        #: whether the agent has the target since this start
        self.echoes = False

    async def prepare(self, scheduler: Wakeful) -> None:
        """Set the target of the agent `default` if the database is new."""
        from wakeful.launch.echo import ECHO

        self.echoes = await scheduler.services.agents.give_first_target(ECHO)

    @contextlib.contextmanager
    def printing(self, scheduler: Wakeful) -> Iterator[None]:
        """Print a line for each run that finishes meanwhile."""
        if not self.prints:
            yield
            return
        if logging.getLogger().level == logging.INFO:  # a line for each request would hide the runs
            logging.getLogger(_REQUESTS).setLevel(logging.WARNING)
        task = asyncio.get_running_loop().create_task(self._print_runs(scheduler))
        try:
            yield
        finally:
            task.cancel()

    async def _print_runs(self, scheduler: Wakeful) -> None:
        from wakeful.service.auth.access import LOCAL
        from wakeful.service.event_stream import serialize_event

        tz = local_zone()
        listener = await scheduler.services.events.subscribe(LOCAL, "default", types=["run.finished"])
        with contextlib.closing(listener), contextlib.suppress(OSError):  # OSError: stdout is closed
            while True:
                try:
                    found = await listener.next(_WAIT_S)
                except Unavailable:  # the engine reports it
                    await asyncio.sleep(_AFTER_ERROR_S)
                    continue
                if found is None:
                    return
                shown = [cast(EventShape, serialize_event(event)) for event in found]
                self._out.say(*(event_line(event, tz) for event in shown))
