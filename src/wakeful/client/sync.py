"""The parts of a client or a scheduler without `await`: `client.jobs`, `app.sync.runs`, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from wakeful.client import admin, jobs, runs
from wakeful.client.portal import Portal, blocking
from wakeful.model import Run

A = TypeVar("A")


class SyncPart(Generic[A]):
    """A part: the portal to its event loop, and the part with `await`."""

    def __init__(self, portal: Portal, inner: A) -> None:
        self.portal = portal
        self.inner = inner


class Jobs(SyncPart[jobs.Jobs]):
    """The jobs of one agent: `client.jobs`."""

    create = blocking(jobs.Jobs.create)
    create_many = blocking(jobs.Jobs.create_many)
    upsert = blocking(jobs.Jobs.upsert)
    dry_run = blocking(jobs.Jobs.dry_run)
    update = blocking(jobs.Jobs.update)
    get = blocking(jobs.Jobs.get)
    list = blocking(jobs.Jobs.list)
    pause = blocking(jobs.Jobs.pause)
    pause_many = blocking(jobs.Jobs.pause_many)
    resume_many = blocking(jobs.Jobs.resume_many)
    peaks = blocking(jobs.Jobs.peaks)
    preview = blocking(jobs.Jobs.preview)
    test_target = blocking(jobs.Jobs.test_target)
    skip_next = blocking(jobs.Jobs.skip_next)
    resume = blocking(jobs.Jobs.resume)
    delete = blocking(jobs.Jobs.delete)
    rotate_secret = blocking(jobs.Jobs.rotate_secret)
    revisions = blocking(jobs.Jobs.revisions)
    restore = blocking(jobs.Jobs.restore)
    create_hook = blocking(jobs.Jobs.create_hook)
    get_hook = blocking(jobs.Jobs.get_hook)
    delete_hook = blocking(jobs.Jobs.delete_hook)
    runs = blocking(jobs.Jobs.runs)
    run = blocking(jobs.Jobs.run)
    backfill = blocking(jobs.Jobs.backfill)

    def of(self, agent: str, workspace: str | None = None) -> Jobs:
        """Return the jobs of another agent."""
        return Jobs(self.portal, self.inner.of(agent, workspace))


class Runs(SyncPart[runs.Runs]):
    """The runs of one agent: `client.runs`."""

    get = blocking(runs.Runs.get)
    attempts = blocking(runs.Runs.attempts)
    list = blocking(runs.Runs.list)
    dead_letters = blocking(runs.Runs.dead_letters)
    cancel = blocking(runs.Runs.cancel)
    stop = blocking(runs.Runs.stop)
    replay = blocking(runs.Runs.replay)
    discard = blocking(runs.Runs.discard)
    replay_many = blocking(runs.Runs.replay_many)
    discard_many = blocking(runs.Runs.discard_many)
    complete = blocking(runs.Runs.complete)
    verify = blocking(runs.Runs.verify)
    heartbeat = blocking(runs.Runs.heartbeat)
    heartbeat_many = blocking(runs.Runs.heartbeat_many)
    release = blocking(runs.Runs.release)
    claim = blocking(runs.Runs.claim)
    wake = blocking(runs.Runs.wake)

    def of(self, agent: str, workspace: str | None = None) -> Runs:
        """Return the runs of another agent."""
        return Runs(self.portal, self.inner.of(agent, workspace))

    def wait(
        self,
        run_id: str,
        *,
        timeout: float | None = None,
        poll: float = 0.1,
        on_poll: Callable[[Run], None] | None = None,
    ) -> Run:
        """Return a run once it has ended; TimeoutError after `timeout` seconds.

        `on_poll` is called with the run after each read, on this thread; it may use the client.
        """
        for run in self.portal.each(runs.poll_run(self.inner, run_id, poll), timeout):
            if on_poll is not None:
                on_poll(run)
        return run


class Agents(SyncPart[admin.Agents]):
    """The agents of a workspace: `client.agents`."""

    list = blocking(admin.Agents.list)
    get = blocking(admin.Agents.get)
    send = blocking(admin.Agents.send)
    put = blocking(admin.Agents.put)
    update = blocking(admin.Agents.update)
    rotate_secret = blocking(admin.Agents.rotate_secret)
    delete = blocking(admin.Agents.delete)
    say = blocking(admin.Agents.say)
    sessions = blocking(admin.Agents.sessions)
    session = blocking(admin.Agents.session)
    delete_session = blocking(admin.Agents.delete_session)
    start = blocking(admin.Agents.start)
    stop = blocking(admin.Agents.stop)
    pause = blocking(admin.Agents.pause)
    resume = blocking(admin.Agents.resume)
    start_many = blocking(admin.Agents.start_many)
    delete_instance = blocking(admin.Agents.delete_instance)
    ask = blocking(admin.Agents.ask)
    hibernate = blocking(admin.Agents.hibernate)
    state = blocking(admin.Agents.state)
    instance = blocking(admin.Agents.instance)
    instances = blocking(admin.Agents.instances)


class Incidents(SyncPart[admin.Incidents]):
    """The incidents of a workspace: `client.incidents`."""

    list = blocking(admin.Incidents.list)
    get = blocking(admin.Incidents.get)
    ack = blocking(admin.Incidents.ack)


class Inbox(SyncPart[admin.Inbox]):
    """What waits for a person: `client.inbox`."""

    list = blocking(admin.Inbox.list)
    counts = blocking(admin.Inbox.counts)
    approve = blocking(admin.Inbox.approve)
    reject = blocking(admin.Inbox.reject)


class Suggestions(SyncPart[admin.Suggestions]):
    """The suggestions of a workspace: `client.suggestions`."""

    list = blocking(admin.Suggestions.list)
    get = blocking(admin.Suggestions.get)
    apply = blocking(admin.Suggestions.apply)
    dismiss = blocking(admin.Suggestions.dismiss)
    rollback = blocking(admin.Suggestions.rollback)


class Keys(SyncPart[admin.Keys]):
    """The API keys of a workspace: `client.keys`."""

    list = blocking(admin.Keys.list)
    create = blocking(admin.Keys.create)
    revoke = blocking(admin.Keys.revoke)


class Audit(SyncPart[admin.Audit]):
    """The audit log of a workspace: `client.audit`."""

    list = blocking(admin.Audit.list)
    verify = blocking(admin.Audit.verify)


class Quotas(SyncPart[admin.Quotas]):
    """The quotas of a workspace: `client.quotas`."""

    list = blocking(admin.Quotas.list)


class Workflows(SyncPart[admin.Workflows]):
    """The workflows of a workspace, by id and version: `client.workflows`."""

    put = blocking(admin.Workflows.put)
    get = blocking(admin.Workflows.get)
