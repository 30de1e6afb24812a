"""What a database keeps besides time: who may, what they did, how much they may, and what they asked before.

The second half of the contract (`Store` in `port.py` is the first; a store is both). The same rules hold:
every call is one transaction, set-based, decided by the caller.

- `workspaces`, `agents`: who there is. `default` of both exists from the start, and a job's agent is made
  with its first job.
- `keys`: API keys, by the SHA-256 of their secret half: a key is never kept.
- `audit`: append-only. `seq` has no gaps in a workspace, and each entry carries the hash of the one before
  (`wakeful.store.audit_chain`). An entry is written in the transaction of what it tells of: neither is there
  without the other.
- `quotas`: limits that somebody set, and what is used of them. A bucket counts for an agent (`agent` is its
  slug) or for the whole workspace (`agent` is '').
- `workflows`: documents by id and version; a version never changes.
- `answers`: idempotency keys, each with the response of its operation (`wakeful.store.idempotency`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from wakeful.errors import Unavailable
from wakeful.store.idempotency import StoredResponse
from wakeful.store.rows import JobChange, JobRow

#: Charged once for every job that is created, and counted anew each day (UTC).
CREATE_JOB: Final = "scheduler.createJob"
#: How many jobs there are, deleted ones not counted. Nothing is stored for it but its limit.
LIVE_JOBS: Final = "scheduler.liveJobs"
BUCKETS: Final = (CREATE_JOB, LIVE_JOBS)


class Entry(NamedTuple):
    """Something that somebody did, to be written down with it."""

    workspace: str
    #: who: `key:<id>`, `jwt:<subject>`, `python`, `wakeful` itself
    actor: str
    #: what: `job.create`, `run.replay`, `key.revoke` …
    action: str
    #: to what: `<agent>/<job>`, a run's id, a key's id …
    subject: str
    #: compact JSON of what else there is to say; never a secret
    details: str
    #: the address it came from, where there is one
    address: str | None


class AuditRow(NamedTuple):
    """An entry as it stands in the chain."""

    workspace: str
    seq: int
    at_ms: int
    actor: str
    action: str
    subject: str
    details: str
    address: str | None
    #: the hash of the entry before this one ('' for the first), and this one's own, in hex
    before: str
    hash: str


class WorkspaceRow(NamedTuple):
    """A tenant."""

    name: str
    #: the zone of its jobs that name none
    tz: str | None
    description: str
    created_ms: int
    updated_ms: int
    #: compact JSON of how much its runs may use a day, and of who is told when something goes wrong
    budget: str | None = None
    alerts: str | None = None


class Inherited(NamedTuple):
    """What jobs have from their agent; as it is here for an agent that does not exist yet."""

    #: compact JSON of the target of jobs that have none of their own
    target: str | None = None
    active: bool = True
    #: encrypted secret that signs the webhooks its jobs inherit, and the one before it while it still signs
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None


class AgentChanged(Unavailable):
    """A job was made or changed for an agent that is different by now; nothing was written.

    The caller reads the agent again and repeats the operation.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(f"agent '{agent}' is being changed at this moment; try again")


class AgentRow(NamedTuple):
    """Who is woken."""

    workspace: str
    name: str
    #: compact JSON of the target of its jobs that have none of their own
    target: str | None
    tz: str | None
    active: bool
    #: where its output goes, unless a job says otherwise
    channel: str | None
    to: str | None
    description: str
    version: int
    created_ms: int
    updated_ms: int
    #: compact JSON of how much its runs may use a day, and of who is told when something goes wrong
    budget: str | None = None
    alerts: str | None = None
    #: compact JSON of how messages wait in its sessions
    queue: str | None = None
    #: compact JSON of how it looks around by itself
    heartbeat: str | None = None
    #: encrypted secret that signs the webhooks its jobs inherit, and the one before it while it still signs
    secret: bytes | None = None
    old_secret: bytes | None = None
    old_secret_until_ms: int | None = None
    #: compact JSON of where its keys may have output delivered, beside its own channel and recipient
    deliver_to: str | None = None

    @property
    def inherited(self) -> Inherited:
        """What its jobs have from it."""
        return Inherited(self.target, self.active, self.secret, self.old_secret, self.old_secret_until_ms)


#: What becomes of a job of this agent, as the agent is now; None: nothing.
Follow = Callable[[AgentRow, JobRow], JobChange | None]


class KeyRow(NamedTuple):
    """An API key, without the key."""

    id: str
    #: None: every workspace. The first key of an installation is such a one
    workspace: str | None
    name: str
    role: str
    #: the agent that a key of the role `agent` is bound to
    agent: str | None
    #: SHA-256 of the whole key
    hash: bytes
    created_ms: int
    created_by: str
    expires_ms: int | None
    last_used_ms: int | None
    revoked_ms: int | None


class KeyChange(NamedTuple):
    """What is to become of the keys: one more, some less."""

    add: KeyRow | None = None
    #: ids
    revoke: Sequence[str] = ()
    entries: Sequence[Entry] = ()


class QuotaRow(NamedTuple):
    """A bucket: what is allowed, where somebody said so, and what is used."""

    workspace: str
    #: '' for the whole workspace
    agent: str
    bucket: str
    #: None: no limit is set here; the installation's own holds
    limit: int | None
    used: int


class Allowance(NamedTuple):
    """The limits that hold where no other is set; None is no limit."""

    #: jobs created a day
    create_per_workspace: int | None = None
    create_per_agent: int | None = None
    #: jobs that exist
    live_per_workspace: int | None = None
    live_per_agent: int | None = None


class WorkflowRow(NamedTuple):
    """A version of a workflow."""

    workspace: str
    id: str
    version: int
    #: compact JSON
    dag: str
    created_ms: int


class Office(Protocol):
    """The rest of what a store does."""

    # --- workspaces and agents --------------------------------------------------------------------

    async def workspace(self, name: str) -> WorkspaceRow | None:
        """The workspace of that name."""
        ...

    async def workspaces(self) -> list[WorkspaceRow]:
        """All of them, by name."""
        ...

    async def put_workspace(self, row: WorkspaceRow, entries: Sequence[Entry] = ()) -> None:
        """Add it, or replace all of it but `created_ms`."""
        ...

    async def agent(self, workspace: str, name: str) -> AgentRow | None:
        """The agent of that name."""
        ...

    async def agents(self, workspace: str) -> list[AgentRow]:
        """All of a workspace, by name."""
        ...

    async def put_agent(
        self,
        workspace: str,
        name: str,
        change: Callable[[AgentRow | None], AgentRow | None],
        entries: Sequence[Entry] = (),
        follow: Follow | None = None,
    ) -> AgentRow | None:
        """Lock the agent and write what `change` makes of it; None leaves it alone, without an entry.

        `version` goes up by one, or is 1 for a new one; `created_ms` stays. Returns it as it is afterwards.
        With `follow`, what it makes of the agent's jobs is written in the same transaction, as by
        `change_job`, but set-based. Jobs that another transaction makes or changes for
        this agent wait for the end of this one, or this one waits for theirs. An exception of either
        function leaves everything as it was. `follow` may be called twice for a job.
        """
        ...

    async def delete_agent(self, workspace: str, name: str, entries: Sequence[Entry] = ()) -> bool:
        """Delete the agent. False: there is none. FailedPrecondition: it has jobs, and says how many."""
        ...

    # --- keys -------------------------------------------------------------------------------------

    async def add_key(self, row: KeyRow, entries: Sequence[Entry] = ()) -> None:
        """Keep a key."""
        ...

    async def change_keys(self, decide: Callable[[Sequence[KeyRow]], KeyChange]) -> bool:
        """Write what `decide` makes of all keys there are, which no other transaction changes meanwhile.

        Returns whether it changed anything. Only for a start: it reads all keys, and keeps others from
        writing any.
        """
        ...

    async def key_by_hash(self, hash: bytes) -> KeyRow | None:
        """The key with that hash, expired and revoked ones too."""
        ...

    async def keys(self, workspace: str | None) -> list[KeyRow]:
        """The keys of a workspace, oldest first; None: all keys there are, those for all workspaces too."""
        ...

    async def revoke_key(self, key_id: str, now_ms: int, entries: Sequence[Entry] = ()) -> bool:
        """End a key. False: there is none of that id, or it has ended before."""
        ...

    async def touch_keys(self, used: Sequence[tuple[str, int]]) -> None:
        """Note when keys were last used: (id, instant). An instant before the one noted changes nothing."""
        ...

    # --- audit ------------------------------------------------------------------------------------

    async def append(self, entries: Sequence[Entry]) -> None:
        """Write down what was done where nothing else is written."""
        ...

    async def audit(
        self, workspace: str, *, after: int = 0, before: int | None = None, limit: int = 100
    ) -> list[AuditRow]:
        """Entries with a `seq` above `after`, oldest first; with `before`, those below it, newest first."""
        ...

    async def audit_head(self, workspace: str) -> tuple[int, str]:
        """The number and the hash of the newest entry, noted apart from the entries; (0, ''): none."""
        ...

    # --- quotas -----------------------------------------------------------------------------------

    async def quotas(self, workspace: str, now_ms: int) -> list[QuotaRow]:
        """What is set and what is used, for the workspace and each of its agents that has used anything."""
        ...

    async def set_quota(
        self, workspace: str, agent: str, bucket: str, limit: int | None, entries: Sequence[Entry] = ()
    ) -> None:
        """Set a limit, or with None let the installation's own hold again. What is used stays."""
        ...

    # --- workflows --------------------------------------------------------------------------------

    async def put_workflow(self, row: WorkflowRow, entries: Sequence[Entry] = ()) -> bool:
        """Keep a version. False: it is there, and the same. AlreadyExists: it is there, and another."""
        ...

    async def workflow(self, workspace: str, workflow_id: str, version: int) -> WorkflowRow | None:
        """That version."""
        ...

    # --- idempotency keys -------------------------------------------------------------------------

    async def stored_response(self, workspace: str, key: str) -> StoredResponse | None:
        """The response that was stored with that key less than a day ago."""
        ...
