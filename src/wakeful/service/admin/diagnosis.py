"""The rules of `wakeful doctor`: each turns measured values into a check, with what to do about it.

A rule is a pure function. `wakeful.service.admin.doctor` collects the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.job.start_rules import Capabilities, can_take
from wakeful.model.reports import Check, CheckState
from wakeful.store.sql.event_figures import EventFigures
from wakeful.store.stats import DueRequirement
from wakeful.values.duration import spell_duration
from wakeful.values.plural import plural

#: A database that takes longer to respond is slow.
SLOW_MS: Final = 500
#: Clocks that differ by less agree.
SKEW_MS: Final = 1_000
#: A job that is due for longer is not planned, and a run that is due for longer is late.
LATE_MS: Final = 60_000
VERY_LATE_MS: Final = 600_000
#: Free disk space below these bytes, or below this part of the disk.
LOW_BYTES: Final = 1_000_000_000
LOW_RATIO: Final = 0.1
FULL_BYTES: Final = 100_000_000
FULL_RATIO: Final = 0.02
#: The number of names that a message lists.
_SHOWN: Final = 3


def check_failed(name: str, reason: str) -> Check:
    """Return the check of values that could not be read."""
    return Check(name, "unknown", f"not checked: {reason}")


def check_server(url: str, code: str | None, message: str) -> Check:
    """Check that the server responds and accepts the key; `code` is that of the error."""
    if code is None:
        return Check("server", "ok", message)
    if code == "unavailable":  # the message says what to do
        return Check("server", "error", message, None, "wakefuldown")
    action = f"check that {url} is a Wakeful server of this version, and the name of the workspace"
    if code == "unauthenticated":
        action = "set WAKEFUL_KEY to a valid key; `wakeful keys env` prints that of this machine's server"
    elif code == "permission-denied":
        action = "use the key of an admin"
    return Check("server", "error", message, action)


def check_database(address: str, latency_ms: float | None, error: str | None) -> Check:
    """Check that the database responds."""
    if error is not None:
        return Check(
            "database",
            "error",
            error,
            "start the database or correct WAKEFUL_DB; nothing is lost, the server continues by itself",
            "wakefuldatabaseunavailable",
        )
    assert latency_ms is not None
    message = f"{address} responds in {max(1, round(latency_ms))} ms"
    if latency_ms > SLOW_MS:
        action = "check the load of the database and the network between it and this server"
        return Check("database", "warning", message, action, "wakefuldatabaseunavailable")
    return Check("database", "ok", message)


def check_connections(limit: int, others: int, processes: int, per_process: int) -> Check:
    """Check that the database server accepts all connections that this server may open.

    `others` is the number of connections that are not its own.
    """
    needed = processes * per_process
    own = f"{plural(processes, 'process', 'processes')} of this server may open {needed}"
    message = f"the database server accepts {limit} connections; others use {others}, {own}"
    if others + needed > limit:
        return Check(
            "connections",
            "warning",
            message,
            "raise max_connections of PostgreSQL, or reduce --processes or ?pool_size= in WAKEFUL_DB",
            "too-many-connections",
        )
    return Check("connections", "ok", message)


def check_schema(schema: int, newest: int) -> Check:
    """Check the schema of the database against the newest that this version has."""
    if schema < newest:
        return Check(
            "schema",
            "error",
            f"the database has schema {schema}; this version needs {newest}",
            "run `wakeful migrate`, or start a server with a role that may change tables",
            "a-replica-has-another-version",
        )
    if schema > newest:
        return Check(
            "schema",
            "warning",
            f"the database has schema {schema}, which a newer version installed; this one has {newest}",
            "upgrade the remaining replicas",
            "a-replica-has-another-version",
        )
    return Check("schema", "ok", f"schema {schema}, the newest of this version")


def check_clock(name: str, skew_ms: int, first: str, second: str) -> Check:
    """Check the difference between two clocks; `skew_ms` is how far the first is ahead of the second."""
    if abs(skew_ms) <= SKEW_MS:
        return Check(name, "ok", f"{first} and {second} agree")
    ahead, behind = (first, second) if skew_ms > 0 else (second, first)
    return Check(
        name,
        "warning",
        f"{ahead} is {spell_duration(abs(skew_ms) // 1000 * 1000)} ahead of {behind}",
        "synchronize the clocks (NTP); schedules follow the clock of the database",
        "a-clock-is-wrong",
    )


def check_engine(alive: bool, stalled: Sequence[str], planned_ago_s: float, overdue_ms: int | None) -> Check:
    """Check that the loops run, and that no job waits for the planner."""
    if not alive:
        action = "restart the server; its last log lines name the reason"
        return Check("engine", "error", "the engine does not run", action, "wakefulnotplanning")
    if stalled:
        return Check(
            "engine",
            "error",
            f"{plural(len(stalled), 'loop')} stalled: {', '.join(stalled)}",
            "look for `loop.error` in the log; restart the server if it does not recover",
            "wakefulloopstalled",
        )
    if overdue_ms is not None and overdue_ms > LATE_MS:
        return Check(
            "engine",
            "error",
            f"a job waits for the planner since {spell_duration(_round(overdue_ms))}",
            "look for errors of the planner in the log, and for locks in the database",
            "wakefuljobsnotplanned",
        )
    return Check("engine", "ok", f"all loops run; the last planning pass was {planned_ago_s:.0f} s ago")


def check_replicas(workers: Sequence[str]) -> Check:
    """Check that replicas have sent a heartbeat."""
    if not workers:
        return Check(
            "replicas",
            "error",
            "no replica has sent a heartbeat in the last 30 s",
            "start `wakeful serve` or `wakeful worker`",
            "wakefuldown",
        )
    return Check("replicas", "ok", f"{plural(len(workers), 'replica')} alive: {listed(workers)}")


def check_lanes(used: Mapping[str, tuple[int, int]], due: Mapping[str, int]) -> Check:
    """Check the lanes of this replica: (used, size) by lane, and the number of due runs."""
    full = [
        f"{lane} ({busy} of {size}, {plural(due.get(lane, 0), 'run')} due)"
        for lane, (busy, size) in sorted(used.items())
        if busy >= size and due.get(lane, 0)
    ]
    unknown = sorted(lane for lane, number in due.items() if number and lane not in used)
    if unknown:
        return Check(
            "lanes",
            "warning",
            f"runs wait in lanes that this replica does not have: {listed(unknown)}",
            f"set WAKEFUL_LANE_{unknown[0].upper().replace('-', '_')} on a replica",
            "wakefullanefull",
        )
    if full:
        return Check(
            "lanes",
            "warning",
            f"full: {listed(full)}",
            "look for runs that hang (`wakeful runs --state running`); raise WAKEFUL_LANE_… or add replicas",
            "wakefullanefull",
        )
    return Check("lanes", "ok", f"{plural(len(used), 'lane')}, none full")


def check_due_runs(number: int, oldest_age_ms: int | None) -> Check:
    """Check how long the oldest due run waits for a worker."""
    if oldest_age_ms is None or oldest_age_ms <= LATE_MS:
        message = "no run waits" if not number else f"{plural(number, 'run')} due, none for over a minute"
        return Check("due runs", "ok", message)
    state: CheckState = "error" if oldest_age_ms > VERY_LATE_MS else "warning"
    return Check(
        "due runs",
        state,
        f"{plural(number, 'run')} due, the oldest for {spell_duration(_round(oldest_age_ms))}",
        "check lanes and replicas; `wakeful runs --state pending` lists them",
        "wakefulrunswaiting",
    )


def check_functions(due: Sequence[DueRequirement], running: Sequence[Capabilities]) -> Check:
    """Check that each function and agent class that due runs require is in a running replica."""
    unmet = [
        each for each in due if not any(can_take(capabilities, each.requirement) for capabilities in running)
    ]
    if not unmet:
        return Check("functions", "ok", "a replica has each function and agent class that due runs require")
    missing = listed([f"{each.requirement.description} ({plural(each.number, 'run')} due)" for each in unmet])
    return Check(
        "functions",
        "error",
        f"no running replica has {missing}",
        "start a process that registers it, or give the jobs another target",
        "wakefulrunswaiting",
    )


def check_unclaimed(
    number: int, oldest_age_ms: int | None, by_agent: Sequence[tuple[str, str, int]]
) -> Check:
    """Check how long the oldest pull run waits for an executor; `by_agent` has workspace, agent, number."""
    if oldest_age_ms is None or oldest_age_ms <= LATE_MS:
        return Check("executors", "ok", "no run waits for an executor for over a minute")
    agents = listed([f"{workspace}/{agent} ({count})" for workspace, agent, count in by_agent])
    return Check(
        "executors",
        "warning",
        f"{plural(number, 'run')} unclaimed, the oldest for {spell_duration(_round(oldest_age_ms))}: "
        f"{agents}",
        "start an executor for these agents, or give the agents or their jobs a target",
        "wakefulrunsunclaimed",
    )


def check_leases(expired: int) -> Check:
    """Check for running runs whose worker is dead and that no replica has rescued."""
    if not expired:
        return Check("leases", "ok", "no run has an expired lease")
    return Check(
        "leases",
        "error",
        f"{plural(expired, 'running run')} with a lease that expired over a minute ago",
        "a replica rescues them within seconds: look for errors of the loop `rescuer` in the log",
        "a-process-is-killed",
    )


def check_dead_letters(by_reason: Sequence[tuple[str, int]]) -> Check:
    """Check for dead letters."""
    total = sum(number for _, number in by_reason)
    if not total:
        return Check("dead letters", "ok", "none")
    reasons = listed([f"{reason or 'failed'} ({number})" for reason, number in by_reason])
    return Check(
        "dead letters",
        "warning",
        f"{plural(total, 'dead letter')}: {reasons}",
        "look at them with `wakeful dead-letters`, then `wakeful replay` or `wakeful discard`",
        "wakefuldeadletters",
    )


def find_cycles(chained: Sequence[tuple[str, str, str, str]]) -> list[tuple[str, ...]]:
    """Return the jobs that come after each other, as `agent/name`, each group from its first name on.

    >>> find_cycles([("w", "ops", "b", "a"), ("w", "ops", "a", "b"), ("w", "ops", "c", "b")])
    [('ops/a', 'ops/b')]
    """
    after = {(workspace, agent, name): (workspace, agent, to) for workspace, agent, name, to in chained}
    found: set[tuple[tuple[str, str, str], ...]] = set()
    seen: set[tuple[str, str, str]] = set()
    for start in after:
        path: list[tuple[str, str, str]] = []
        at = start
        while at in after and at not in seen:
            seen.add(at)
            path.append(at)
            at = after[at]
        if at in path:
            cycle = path[path.index(at) :]
            first = cycle.index(min(cycle))
            found.add((*cycle[first:], *cycle[:first]))
    return [tuple(f"{agent}/{name}" for _, agent, name in cycle) for cycle in sorted(found)]


def check_chains(alone: Sequence[tuple[str, str, str, str]], cycles: Sequence[Sequence[str]] = ()) -> Check:
    """Check for jobs that come after each other, and after one that does not exist.

    `alone` are the latter: workspace, agent, name, and that name.
    """
    if cycles:
        chains = listed([" after ".join([*cycle, cycle[0]]) for cycle in cycles])
        return Check(
            "chains",
            "warning",
            f"jobs come after each other, so a run of one fires all of them again and again: {chains}",
            "give one of them a schedule instead of `after` with `wakeful edit`, or delete it",
        )
    if not alone:
        return Check("chains", "ok", "each job that comes after another one has it")
    names = listed([f"{agent}/{name} (after {after})" for _, agent, name, after in alone])
    return Check(
        "chains",
        "warning",
        f"{plural(len(alone), 'job')} never fire by `after`, since that job does not exist: {names}",
        "create the missing job, or change `after` with `wakeful edit`",
    )


def check_incidents(open_count: int, acknowledged: int) -> Check:
    """Check for open incidents that are not acknowledged."""
    if not open_count:
        return Check("incidents", "ok", f"{acknowledged} acknowledged" if acknowledged else "none open")
    return Check(
        "incidents",
        "warning",
        f"{plural(open_count, 'incident')} open",
        "look at them with `wakeful incidents`; `wakeful incidents ack ID` stops the reminders",
        "wakefuldeadletters",
    )


def check_events(figures: EventFigures, now_ms: int) -> Check:
    """Check the deliveries of MCP events, and the subscriptions of jobs to events of other servers."""
    number = sum(figures.sources.values())
    late_ms = now_ms - min(figures.oldest_ms or now_ms, figures.due_ms or now_ms)
    if late_ms > LATE_MS:
        return Check(
            "events",
            "error",
            f"events wait for {spell_duration(_round(late_ms))}: no replica feeds or polls them",
            "look for errors of the loops `event_feeder` and `event-subscriber` in the log",
        )
    failed = figures.sources.get("failed", 0)
    if failed or figures.failing:
        return Check(
            "events",
            "warning",
            f"{failed} of {plural(number, 'job')} get no events of their servers, and the callbacks of "
            f"{figures.failing} of {plural(figures.subscriptions, 'subscription')} fail",
            "look at the errors with `wakeful incidents`",
        )
    served = plural(figures.subscriptions, "subscription")
    return Check("events", "ok", f"{served} of assistants, {number} of jobs")


def check_channels(
    names: Sequence[str],
    installed: bool,
    counts: Sequence[tuple[str, str, int]],
    unreachable: Sequence[str] = (),
) -> Check:
    """Check the channels, and the deliveries of the last day: (channel, state, number).

    `unreachable` are the jobs whose channel is missing or unknown.
    """
    if names and not installed:
        return Check(
            "channels",
            "error",
            f"{plural(len(names), 'channel')} set, but Apprise is not installed",
            "install the extra 'deliver' of Wakeful where the server runs",
            "wakefuldeliveriesfail",
        )
    failed: dict[str, int] = {}
    for channel, state, number in counts:
        if state in ("failed", "unknown"):
            failed[channel or "no channel"] = failed.get(channel or "no channel", 0) + number
    if failed:
        found = listed([f"{channel} ({number})" for channel, number in sorted(failed.items())])
        return Check(
            "channels",
            "warning",
            f"{plural(sum(failed.values()), 'delivery', 'deliveries')} failed in the last day: {found}",
            "`wakeful runs ID` shows the error of a delivery; correct WAKEFUL_CHANNEL_…",
            "wakefuldeliveriesfail",
        )
    if unreachable:
        return Check(
            "channels",
            "warning",
            f"{plural(len(unreachable), 'job')} with deliver and no channel of this server: "
            f"{listed(unreachable)}",
            "`wakeful show JOB` says what is missing: a channel of the job, or WAKEFUL_CHANNEL_…",
            "wakefuldeliveriesfail",
        )
    message = "none set" if not names else f"{listed(list(names))}; no delivery failed in the last day"
    return Check("channels", "ok", message)


def check_targets(
    kind: str, number: int, broken: Sequence[tuple[str, str]], more: bool, action: str
) -> Check:
    """Check the targets of a kind: how many there are, those that cannot be launched and why.

    `more`: there are jobs that were not read. `action`: what to do about those that cannot be launched.
    """
    if broken:
        found = listed([f"{name} ({why})" for name, why in broken])
        message = f"{plural(len(broken), f'{kind} target')} cannot be launched: {found}"
        return Check(kind, "error", message, action)
    counted = plural(number, f"{kind} target") if number else f"no {kind} targets"
    return Check(kind, "ok", f"at least {counted}" if more else counted)


def check_chat(
    number: int, broken: Sequence[tuple[str, str]], more: bool, unbound: Sequence[str] = ()
) -> Check:
    """Check chat targets. `unbound`: API keys that may be sent to any host."""
    action = "set WAKEFUL_CHAT_KEY_… and WAKEFUL_CHAT_HOSTS_… on every replica, or correct the target"
    check = check_targets("chat", number, broken, more, action)
    if check.state == "ok" and unbound:
        return Check(
            "chat",
            "warning",
            f"jobs may send these API keys to any host: {listed(unbound)}",
            "list the hosts of each key in WAKEFUL_CHAT_HOSTS_…",
        )
    return check


def check_disk(size: int, free: int | None, total: int | None) -> Check:
    """Check the free space on the disk of the database; None if it is on another machine."""
    if free is None or not total:
        return Check(
            "disk", "unknown", f"the database has {_bytes(size)}; the disk of its server is not visible here"
        )
    message = f"the database has {_bytes(size)}; {_bytes(free)} of {_bytes(total)} are free"
    action = "free disk space, or reduce WAKEFUL_RETENTION_DAYS"
    if free < FULL_BYTES or free < FULL_RATIO * total:
        return Check("disk", "error", message, action, "the-disk-is-full")
    if free < LOW_BYTES or (free < LOW_RATIO * total and free < 10 * LOW_BYTES):
        return Check("disk", "warning", message, action, "the-disk-is-full")
    return Check("disk", "ok", message)


def check_settings(public: bool, private_targets: bool, key_is_set: bool, one_machine: bool) -> Check:
    """Check settings that are unsafe together.

    `public`: the server listens on other addresses than this machine's. `one_machine`: the database is a
    file, so that a generated key file is enough.
    """
    if public and private_targets:
        return Check(
            "settings",
            "warning",
            "webhooks may reach private addresses, and the server listens on the network",
            "unset WAKEFUL_ALLOW_PRIVATE_TARGETS and do not use --dev, unless every user may reach them",
        )
    if not key_is_set and not one_machine:
        return Check(
            "settings",
            "warning",
            "WAKEFUL_SECRET_KEY is not set: jobs with a webhook are refused",
            "set the same WAKEFUL_SECRET_KEY on all replicas",
            "the-secret-key-is-lost",
        )
    return Check("settings", "ok", "no unsafe combination")


def worst(checks: Sequence[Check]) -> CheckState:
    """Return the worst state of the checks; `unknown` counts as ok.

    >>> worst([Check("disk", "unknown", ""), Check("lanes", "warning", "")])
    'warning'
    """
    states = {check.state for check in checks}
    return "error" if "error" in states else "warning" if "warning" in states else "ok"


def listed(names: Sequence[str]) -> str:
    """Return the first names as a list, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _round(ms: int) -> int:
    """Round to whole seconds, or to whole minutes above ten."""
    unit = 1_000 if ms < VERY_LATE_MS else 60_000
    return ms // unit * unit


def _bytes(number: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return plural(number, "byte")
