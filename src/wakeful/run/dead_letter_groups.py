"""Dead letters by cause: which of them a selection means, and the groups that a page shows. Pure.

Dead letters of one job with one cause are one group, as failures are one incident (`wakeful.run.incidents`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from wakeful.run.incidents import failure_cause
from wakeful.values.bounded_cache import MB, bounded_cache
from wakeful.values.stored_text import clean_text


class DeadLetterRow(NamedTuple):
    """What says why a run is a dead letter."""

    id: str
    agent: str
    job_id: str | None
    job_name: str | None
    reason: str | None
    response_code: int | None
    #: its beginning
    error: str | None
    finished_ms: int

    @property
    def cause(self) -> str:
        """Its cause, the same as that of its incident."""
        return dead_letter_cause(self.reason, self.response_code, self.error)


class DeadLetterGroup(NamedTuple):
    """Dead letters of one job with one cause."""

    agent: str
    #: None: runs without a job
    job_id: str | None
    job_name: str | None
    cause: str
    #: how many they are
    runs: int
    #: when the first and the last of them failed
    first_ms: int
    last_ms: int
    #: the newest of them: its id and its error
    newest_id: str
    error: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """Which dead letters a request means; None does not filter."""

    agent: str | None = None
    #: the id or the name of a job; empty: runs without a job
    job: str | None = None
    cause: str | None = None
    #: not newer than the run of this id: so runs that fail meanwhile are left out
    through: str | None = None

    def includes(self, letter: DeadLetterRow) -> bool:
        """Return whether a dead letter is selected."""
        if self.agent not in (None, letter.agent):
            return False
        if self.job is not None and (
            letter.job_id is not None if self.job == "" else self.job not in (letter.job_id, letter.job_name)
        ):
            return False
        return self.cause is None or self.cause == letter.cause


# A page computes the causes of the same dead letters again and again.
@bounded_cache(8 * MB, lambda cause, reason, code, error: 300 + len(cause) + len(error or ""))
def dead_letter_cause(reason: str | None, response_code: int | None, error: str | None) -> str:
    """Return the cause of a failed run, the same as that of its incident."""
    return clean_text(failure_cause(reason, response_code, error))


def group_dead_letters(letters: Iterable[DeadLetterRow]) -> list[DeadLetterGroup]:
    """Return the groups of dead letters, the one with the newest failure first."""
    found: dict[tuple[str, str | None, str], list[DeadLetterRow]] = {}
    for letter in letters:
        found.setdefault((letter.agent, letter.job_id, letter.cause), []).append(letter)
    groups = [_group(cause, same) for (_, _, cause), same in found.items()]
    return sorted(groups, key=lambda group: (group.last_ms, group.newest_id), reverse=True)


def _group(cause: str, same: list[DeadLetterRow]) -> DeadLetterGroup:
    newest = max(same, key=lambda letter: letter.id)
    ends = [letter.finished_ms for letter in same]
    return DeadLetterGroup(
        newest.agent,
        newest.job_id,
        newest.job_name,
        cause,
        len(same),
        min(ends),
        max(ends),
        newest.id,
        newest.error,
    )
