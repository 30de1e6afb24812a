"""When a process that ended is started again, and when the server gives up: pure rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Seconds before a restart: after the second end in a row, and at most.
FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 30.0
#: A process that worked for so long is restarted at once.
STABLE_S: Final = 60.0
#: So many starts in a row that never become ready end the server.
MAX_FAILED_STARTS: Final = 5
#: Seconds without a message after which a process hangs.
SILENT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Restarts:
    """The history of a process that counts for its next restart.

    >>> history = Restarts()
    >>> for _ in range(4):
    ...     history = history.after_end(ready_for_s=0.1)
    ...     print(history.delay_s, end=" ")
    0.0 0.5 1.0 2.0
    >>> history.after_end(ready_for_s=3600).delay_s
    0.0
    """

    #: ends in a row without a stable time in between
    ends: int = 0
    #: starts in a row that did not become ready
    failed_starts: int = 0

    def after_end(self, ready_for_s: float | None, *, counts: bool = True) -> Restarts:
        """Return the history after an end; `ready_for_s` is None if the process was not ready.

        Without `counts` a start that failed is not one of those that end the server: the database was
        unavailable, for example.
        """
        if ready_for_s is None:
            return Restarts(self.ends + 1, self.failed_starts + 1 if counts else self.failed_starts)
        return Restarts(1 if ready_for_s >= STABLE_S else self.ends + 1)

    @property
    def delay_s(self) -> float:
        """The time before the next start."""
        if self.ends < 2:
            return 0.0
        return min(FIRST_DELAY_S * 2.0 ** min(self.ends - 2, 16), LONGEST_DELAY_S)

    @property
    def exhausted(self) -> bool:
        """Whether the process cannot be started."""
        return self.failed_starts >= MAX_FAILED_STARTS
