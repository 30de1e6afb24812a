"""The policies of a job: overlap, catch-up, jitter, retries, limits. All are values.

A job field is declared once, as an annotated attribute of `Timing`, `Policy`, `Work` or `Definition`:

    max_queued: Annotated[int, FieldSpec("How many runs may wait.", low=1, high=10_000)] = 100

`wakeful.document.fields` derives the rest from it: how the value is read, its JSON schema, the Python option,
the CLI flag, what the MCP tool understands, and the row in docs/reference/job.md. Run `make generate` after a
change: it rewrites the derived parts of source files and documentation pages.

The planner applies the overlap policy to ticks, the service to manual runs that name one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Annotated, Final, Literal

#: The group of a field in the documentation and in the help of the CLI.
Section = Literal["schedule", "target", "policy", "delivery"]
Overlap = Literal["allow", "skip", "queue", "queue_one", "replace"]
Catchup = Literal["none", "latest", "fire_immediately", "spread"]
OnLost = Literal["retry", "fail"]

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The name, bounds and documentation of a job field."""

    #: one or two sentences in Markdown; links are relative to docs/reference
    doc: str
    section: Section = "policy"
    #: the JSON name, unless it is the name of the attribute in camelCase
    name: str = ""
    #: the least and the greatest number, both included; of a text, `high` is the greatest length
    low: int = 0
    high: int | None = None
    #: the flags of `wakeful add`, unless there is one with the field's name
    flags: tuple[str, ...] = ()
    #: the description in the schema of the MCP tool; empty: the tool reads the field but does not list it
    tool: str = ""
    #: the default in the documentation, where it is no fixed value
    default: str = ""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay between two attempts: min(base·2^n, max), plus or minus up to 25 %.

    >>> Backoff().delay_ms(failures=1, seed="r1") in range(1500, 2501)
    True
    """

    base_ms: int = 2_000
    max_ms: int = 30_000

    @property
    def base(self) -> timedelta:
        """The first delay."""
        return timedelta(milliseconds=self.base_ms)

    @property
    def max(self) -> timedelta:
        """The longest delay."""
        return timedelta(milliseconds=self.max_ms)

    def delay_ms(self, failures: int, seed: str) -> int:
        """Return the delay after this number of failed attempts; the same seed gives the same delay."""
        delay = min(self.base_ms << min(failures - 1, 62), self.max_ms)
        return delay + spread_evenly(f"{seed}:{failures}", delay // 4)


@dataclass(frozen=True, slots=True)
class Policy:
    """The policies of a job with their defaults. Each attribute declares a job field."""

    overlap: Annotated[
        Overlap,
        FieldSpec(
            "What happens to [a tick while an earlier run is active](../concepts/policies.md#overlap).",
            name="overlapPolicy",
            flags=("--overlap",),
        ),
    ] = "skip"
    max_queued: Annotated[
        int, FieldSpec("How many runs may wait with the overlap policy `queue`.", low=1, high=10_000)
    ] = 100
    catchup: Annotated[
        Catchup,
        FieldSpec(
            "What happens to [ticks that were missed](../concepts/policies.md#catch-up).",
            name="catchupPolicy",
            flags=("--catchup",),
        ),
    ] = "none"
    catchup_window_ms: Annotated[int, FieldSpec("Ticks that are older than this are not caught up.")] = DAY_MS
    # With less grace than an engine sleeps, every tick would be missed.
    misfire_grace_ms: Annotated[
        int, FieldSpec("How late a tick may start before it counts as missed.", low=1000)
    ] = 60_000
    jitter_ms: Annotated[
        int, FieldSpec("Each start moves by a random time up to this, earlier or later.", high=DAY_MS)
    ] = 0
    max_attempts: Annotated[
        int,
        FieldSpec(
            "After this number of [failed attempts](../concepts/policies.md#retries) a run has failed.",
            low=1,
            high=100,
        ),
    ] = 5
    backoff: Annotated[
        Backoff,
        FieldSpec("The first and the longest delay between attempts; `base` and `max` take durations."),
    ] = Backoff()
    timeout_ms: Annotated[
        int | None,
        FieldSpec(
            "How long an attempt may take. `null`: webhook 30 s, function 10 min, claimed runs no limit.",
            low=1,
        ),
    ] = None
    max_runs: Annotated[
        int | None,
        FieldSpec(
            "After this number of scheduled runs the job is disabled.",
            low=1,
            tool="disable the job after this number of runs",
        ),
    ] = None
    on_lost: Annotated[OnLost, FieldSpec("What happens to a run whose worker died.")] = "retry"
    lost_limit: Annotated[
        int,
        FieldSpec(
            "How often a run may be [lost together with other runs](../concepts/policies.md#leases) before "
            "each further loss counts as a failed attempt.",
            low=1,
            high=100,
        ),
    ] = 3
    disable_after: Annotated[
        int | None, FieldSpec("After this number of consecutive failed runs the job is disabled.", low=1)
    ] = None
    delete_after_run: Annotated[
        bool,
        FieldSpec(
            "Delete the job when a run succeeds. `true` by default for an `at` job.",
            tool="delete the job once a run of it has succeeded",
        ),
    ] = False
    claim_timeout_ms: Annotated[
        int, FieldSpec("How long a `pull` run waits for a claim before it fails.", low=1)
    ] = 3_600_000


DEFAULT_POLICY: Final = Policy()


def spread_evenly(seed: str, limit_ms: int) -> int:
    """Return a number in ±limit, uniform over seeds, and always the same for one seed."""
    if limit_ms <= 0:
        return 0
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    return number % (2 * limit_ms + 1) - limit_ms


class OverlapAction(Enum):
    """What becomes of a run that would start now."""

    START = "start"
    #: it waits until no other run of its job is live
    QUEUE = "queue"
    #: it waits, and runs that wait already are cancelled
    SUPERSEDE = "supersede"
    #: it starts, and all other live runs are cancelled. One that waits is older: it must not start later
    REPLACE = "replace"
    #: it is skipped: another run is live
    SKIP = "skip"
    #: it is skipped: `max_queued` runs wait already
    QUEUE_FULL = "queue_full"


def overlap_action(overlap: Overlap, max_queued: int, *, running: bool, waiting: int) -> OverlapAction:
    """Return what becomes of a run, given whether others of its job run and how many wait.

    >>> overlap_action("skip", 100, running=True, waiting=0).name
    'SKIP'
    >>> overlap_action("queue", 100, running=False, waiting=0).name
    'START'
    """
    if overlap == "allow" or not (running or waiting):
        return OverlapAction.START
    if overlap == "skip":
        return OverlapAction.SKIP
    if overlap == "queue":
        return OverlapAction.QUEUE_FULL if waiting >= max_queued else OverlapAction.QUEUE
    return OverlapAction.SUPERSEDE if overlap == "queue_one" else OverlapAction.REPLACE
