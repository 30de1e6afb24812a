"""What a store keeps so that runs do not cost more than they are worth, and that somebody hears of trouble.

- `spending`: what runs used (`Finished.usage`), a day (UTC) at a time, of a job, an agent and a workspace. It
  is added to in the transaction of the outcome that says it, whether or not that attempt succeeded.
- `holds`: caps that were reached. Budgets stand on jobs (in their `work`), agents and workspaces; whenever
  something is added, what it is of is weighed in the same transaction. A cap is reached once a day, whoever
  counts. New holds, and ones that are gone, are announced (`holds`).
- `incidents`: runs that failed, ticks that were missed because nobody was awake, caps that were reached, each
  written in the transaction of what it tells of, if the agent or the workspace has `alerts` (announced:
  `incidents`). Whoever takes one away decides in that transaction whether somebody is told: so one does.
- `alerted`: when somebody was last told, which is what a cool-down counts from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from wakeful.store.rows import RunRow

#: The jobs by which alerts are sent: an agent's own, and of the workspace's one agent, `default`; each to a
#: webhook, and to a channel, so that either is tried again for itself. Of their own runs nobody is told.
AGENT_ALERTS: Final = "wakeful-alerts"
WORKSPACE_ALERTS: Final = "wakeful-workspace-alerts"
AGENT_CHANNEL: Final = "wakeful-channel-alerts"
WORKSPACE_CHANNEL: Final = "wakeful-workspace-channel-alerts"
SENDERS: Final = (AGENT_ALERTS, WORKSPACE_ALERTS, AGENT_CHANNEL, WORKSPACE_CHANNEL)
#: The agent whose job sends the alerts of a whole workspace.
WORKSPACE_AGENT: Final = "default"

IncidentKind = Literal["failed", "missed", "budget"]


class Owner(NamedTuple):
    """Whose budget it is: a job's, with its id; an agent's, without; or that of the workspace as a whole."""

    workspace: str
    agent: str = ""
    job: str = ""


class Spent(NamedTuple):
    """What was used on one day."""

    tokens: int = 0
    cost: float = 0.0


class HoldRow(NamedTuple):
    """A cap that was reached."""

    #: (UTC, counted from 1970)
    day: int
    workspace: str
    agent: str
    job: str
    #: `tokensPerDay` or `costPerDay`
    cap: str
    most: float

    @property
    def owner(self) -> Owner:
        """Whose it is."""
        return Owner(self.workspace, self.agent, self.job)


class Sender(NamedTuple):
    """A job by which alerts are sent."""

    id: str
    agent: str
    name: str
    work: str


class Incident(NamedTuple):
    """Something that somebody may want to be told of, with all that it takes to tell it."""

    id: int
    at_ms: int
    kind: str
    workspace: str
    #: '' for the workspace as a whole
    agent: str
    job_id: str | None
    run_id: str | None
    #: failures in a row; ticks that were missed; 1
    times: int
    #: compact JSON of what else there is to say
    details: str
    job_name: str | None
    error: str | None
    #: compact JSON of the alerts that hold: the agent's, else the workspace's; None: they are gone since
    alerts: str | None
    #: the job by which they are sent to a webhook; None: there is none, or it is gone since
    sender_id: str | None
    sender_agent: str | None
    sender_name: str | None
    sender_work: str | None
    #: likewise, to a channel
    channel_id: str | None
    channel_agent: str | None
    channel_name: str | None
    channel_work: str | None

    @property
    def webhook(self) -> Sender | None:
        """What sends to a webhook."""
        return _sender(self.sender_id, self.sender_agent, self.sender_name, self.sender_work)

    @property
    def channel(self) -> Sender | None:
        """What sends to a channel."""
        return _sender(self.channel_id, self.channel_agent, self.channel_name, self.channel_work)


class Alert(NamedTuple):
    """Somebody is to be told, unless they were a moment ago."""

    workspace: str
    #: what it is about: a job's id, or whose cap it is; with the kind, what the cool-down is kept for
    subject: str
    kind: str
    cooldown_ms: int
    #: the runs that tell it, one for each way that it goes
    runs: tuple[RunRow, ...]


class GuardrailStore(Protocol):
    """The part of a store that keeps the guardrails."""

    async def spent(self, owner: Owner, day: int) -> Spent:
        """What was used on that day."""
        ...

    async def holds(self, day: int) -> list[HoldRow]:
        """The caps that were reached on that day, of all workspaces."""
        ...

    async def weigh(self, now_ms: int, owners: Sequence[Owner]) -> None:
        """Somebody has changed these budgets: hold what is over them today, and no longer what is not."""
        ...

    async def raise_alerts(
        self, now_ms: int, limit: int, judge: Callable[[Incident], Sequence[Alert]]
    ) -> int:
        """Take away up to `limit` incidents, the oldest first, and write the runs of the alerts due to them.

        An alert of the same kind about the same subject is not written again before its cool-down is over,
        whichever replica wrote the last, and is counted once however many ways it goes. Returns how many
        incidents there were.
        """
        ...

    async def prune_guards(self, before_ms: int) -> None:
        """Forget what was used, held and told before then."""
        ...


def _sender(id: str | None, agent: str | None, name: str | None, work: str | None) -> Sender | None:
    if id is None or agent is None or name is None or work is None:
        return None
    return Sender(id, agent, name, work)
