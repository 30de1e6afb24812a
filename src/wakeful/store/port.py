"""The store: one facade and contract for both databases.

Each method names a kind of transaction and an operation, and the driver of the database runs it. Its
docstring is the contract. The methods are in the classes of `sql/`, with the operations that both databases
share: `reads(operation)` and `writes(operation)` are methods with its parameters and docstring.
`sql/operations.py` lists those that each database implements.

A column `x_ms` of a row is an instant; the database has its own type for it and the name `x_at`. The tables:

- `jobs`: one row per job (`JobRow`), and `deleted_at`. The row of a deleted job stays until its last run is
  pruned, because runs outlive their job and may be replayed. UNIQUE (workspace, agent, name) among jobs that
  are not deleted. `wake_at` is when planning looks at the job, and planning scans the index on it. It is the
  next tick (`next_at`) of an enabled job, the end of a pause (`pause_until`, without a `next_at`), or NULL.
  PostgreSQL has the columns that planning changes in a table of its own, `cursors`.
- `runs`: one row per run (`RunView`), and `serial`. UNIQUE (job_id, scheduled_at) among ticks (trigger
  `schedule`): **this index is the lock that makes a tick happen once**; no code above may assume any other.
  `created_at` is the store's clock when the run was inserted. PostgreSQL has the unfinished ones in
  `live_runs` too, a small table for hot queries.
- `attempts`: one row for each attempt but the last, which is on the run itself.
- `workers`: name, `beat_at`, `started_at`, and the `capabilities` of its process. Executors are not workers:
  each run that an executor has claimed has a lease of its own, `beat_at` of the run, which is NULL for a run
  that a worker holds.
- `workspaces`, `agents`, `keys`: `accounts`. `audit`, `audit_heads`, and in PostgreSQL `audit_waiting`:
  `audit`. `quotas`: `quotas`. `workflows`: one row per version (`WorkflowRow`).
  `idempotency_keys`: `idempotency`.
- `spending`, `budget_blocks`, `reservations`: `sql.budgets`. `job_incidents`, `incidents` and
  `alert_cooldowns`: `sql.incidents`.
- `sessions`, `messages`, `turns`, `session_history`: `sessions`. `deliveries`: `deliveries`. `hooks`:
  `sql.hooks`. `event_sources`: `sql.event_sources`.
- `agent_classes`, `instances`, `signal_ids`: `instances`. A run of an instance is in its mailbox until it is
  over, and its `due_at` is NULL until it is its turn.
- `suggestions` and `verifications`: the modules of these names in `sql`. `job_revisions`: one row for each
  change of the definition of a job (`RevisionRow`), written in its transaction (`JobChange.revision`). They
  go with the row of the job.
- `subscriptions` and `event_position`: `sql.subscriptions`.
- `web_sessions`, `sign_in_links`, `sign_in_limits`: `sql.web_sessions`; `people`: `sql.people`.
  `oauth_clients`, `oauth_codes`, `oauth_tokens`: `sql.oauth`.
- `run_counts`, `job_run_periods`, `job_run_counts`, `run_counts_position`: `sql.run_counts`.
- `changes`, and in PostgreSQL `changes_head`: `changelog`. `schema_version`: `migrations`.

Calls are set-based: a call costs a fixed number of statements, however many rows it concerns. Every call is
one transaction. Decisions are made by pure functions that the caller passes; they are called inside the
transaction and must be fast. A store decides nothing itself, and reads the time only from `clock`.

A run keeps the name of the worker that ended it; a pending or retrying run has none. A run that was launched
and awaits its callback is running without a worker (`awaiting_callback`). `due_at` is set while a run is
pending, retrying or awaiting its callback, and NULL otherwise. A *pull run* (`is_pull`) is claimed by an
executor, whose name is its worker then; no worker of a replica takes it. Each time it is due, it waits
`claim_timeout_ms` for an executor, until its `claim_deadline`. To *withdraw* the planned runs of a job is to
cancel its pending ticks; manual runs stay. Deleting or disabling a job clears its `next_at` and `wake_at`.

A tick may be recorded as running shortly before its `fire_at`. Until then it has not started: when its job is
changed or deleted, it is withdrawn with the pending ones (no `started_at`, no worker). If the change keeps it
or withdraws nothing, it is released instead, due at its `fire_at`. Its worker gets `stop:<id>`, or
`stop:<id>:<attempt>` for that attempt alone.

A *prefetched* run is running without `started_at`: its worker starts it when a slot of its lane is free, or
gives it back. When its job changes, it counts as started. Cancelling it takes effect before the launch.

A terminal run (succeeded, failed, cancelled, skipped, missed) does not change any more, except that a dead
letter stops being one (`dead`) when it is replayed or discarded. One without success has an error or a
reason: PostgreSQL finds them by that.
"""

from __future__ import annotations

from collections.abc import Callable

from wakeful.store.caller_transaction import CallerTransaction
from wakeful.store.sql import stats
from wakeful.store.sql.admin import SqlAdmin
from wakeful.store.sql.budgets import SqlBudgets
from wakeful.store.sql.deliveries import SqlDeliveries
from wakeful.store.sql.digests import SqlDigests
from wakeful.store.sql.event_sources import SqlEventSources
from wakeful.store.sql.executors import SqlExecutors
from wakeful.store.sql.figures import SqlFigures, SqlLive
from wakeful.store.sql.hooks import SqlHooks
from wakeful.store.sql.inbox import SqlInbox
from wakeful.store.sql.incidents import SqlIncidents
from wakeful.store.sql.instances import SqlInstances
from wakeful.store.sql.jobs_and_runs import SqlJobsAndRuns
from wakeful.store.sql.oauth import SqlOAuth
from wakeful.store.sql.overviews import SqlOverviews
from wakeful.store.sql.people import SqlPeople
from wakeful.store.sql.reports import SqlReports
from wakeful.store.sql.run_counts import SqlRunCounts
from wakeful.store.sql.running import SqlRunning
from wakeful.store.sql.sessions import SqlSessions
from wakeful.store.sql.subscriptions import SqlSubscriptions
from wakeful.store.sql.suggestions import SqlSuggestions
from wakeful.store.sql.verifications import SqlVerifications
from wakeful.store.sql.web_sessions import SqlWebSessions


class Store(
    SqlRunning,
    SqlExecutors,
    SqlJobsAndRuns,
    SqlInstances,
    SqlSessions,
    SqlDeliveries,
    SqlBudgets,
    SqlIncidents,
    SqlVerifications,
    SqlSuggestions,
    SqlInbox,
    SqlDigests,
    SqlHooks,
    SqlSubscriptions,
    SqlEventSources,
    SqlAdmin,
    SqlWebSessions,
    SqlPeople,
    SqlOAuth,
    SqlRunCounts,
    SqlFigures,
    SqlLive,
    SqlOverviews,
    SqlReports,
):
    """A database of Wakeful.

    Audit `entries` of a call are appended in the same transaction, if it changes anything. With `keyed`, its
    response is stored in the same transaction; if there is one already, the call changes nothing and raises
    AlreadyPerformed (`wakeful.store.idempotency`).
    """

    #: writes in a transaction of the caller, on a connection of its own to the same database
    caller_transaction: CallerTransaction

    @property
    def kind(self) -> str:
        """The database: `sqlite` or `postgresql`."""
        return self._driver.kind

    @property
    def notifies_other_processes(self) -> bool:
        """Whether `listen` also reports changes by other processes on the same database."""
        return self._driver.notifies_other_processes

    @property
    def newest_schema(self) -> int:
        """The newest migration of this code."""
        return self._driver.newest_schema

    async def open(self) -> None:
        """Connect, and migrate the schema: numbered migrations, forward only, under a lock."""
        await self._driver.open()

    async def build_indexes(self) -> None:
        """Wait until the indexes that migrations left for later are built. `open` begins with that."""

    async def schema(self) -> int:
        """Return the newest migration of the database."""
        return await self._read(stats.schema)

    async def ping(self) -> None:
        """Raise Unavailable if the database does not respond, or does not accept writes."""
        await self.workspace("default")

    async def close(self) -> None:
        """Disconnect. No call may be in progress."""
        await self._driver.close()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener` in the event loop with each topic that a transaction publishes, in any process.

        Topics: `jobs` (the wake of a job may be earlier), `runs` (a run may be taken), `budget_blocks` (they
        changed), `incidents` (an alert may be due), `sessions` (a turn may begin), `deliveries` (one may be
        due), `verifications` (one may be due), `instances` (a signal added one), `keys` (keys or
        sessions have ended), `stop:<run id>` (the run was
        cancelled), `stop:<run id>:<attempt>` (the outcome of that attempt was reported from outside),
        `hibernate:<instance id>` (processes unload the instance), and `claim_topic` (nobody waits for the
        claim). With SQLite, changes by other processes are
        not published (`notifies_other_processes`); the engine's longest sleep bounds how late they are seen.
        """
        self._driver.listen(listener)
