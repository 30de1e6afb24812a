"""The statements of the SQLite store, by name, each with the index that serves it.

A statement that must use a certain index names it (INDEXED BY), and SQLite rejects it if that index does not
exist. A list of ids is one JSON text (`json_each`), because SQLite limits the number of parameters, not the
length of a text. Nothing is newer than SQLite 3.33.
"""

from __future__ import annotations

from typing import Final

from wakeful.job.job import AGENT_INACTIVE
from wakeful.run.outcome import TAKEN_OVER
from wakeful.run.run import NewRun
from wakeful.store.changelog import PULL_RUNS, RUNS
from wakeful.store.columns import column_list, fields_before, select_list
from wakeful.store.plans import DueJob
from wakeful.store.rows import AttemptView, JobRow, TakenRun, UnfinishedRun
from wakeful.store.sessions import HEARTBEAT, HEARTBEAT_LABELS
from wakeful.store.sql import jobs, running
from wakeful.store.sqlite.session import Bulk, translate


def marks(count: int) -> str:
    """Return this many parameter marks, separated by commas."""
    return ", ".join("?" * count)


# --- planning -------------------------------------------------------------------------------------------

# jobs_wake: a range of it, in its order. The two statements see the same jobs, being in one transaction.
_DUE: Final = "FROM jobs INDEXED BY jobs_wake WHERE wake_at <= ?1 ORDER BY wake_at, rowid LIMIT ?2"
_DUE_JOB: Final = select_list(
    fields_before(DueJob, "running"),
    "jobs",
    {
        "next_ms": "coalesce(next_at, pause_until)",
        "agent_active": """iif(pause_until IS NULL, NULL,
            (SELECT active FROM agents a WHERE a.workspace = jobs.workspace AND a.name = jobs.agent))""",
    },
)
#: the columns of `DueJob`, and the rowid, by which the job is advanced
CLAIM: Final = f"SELECT {_DUE_JOB}, rowid {_DUE}"
#: jobs_wake, then runs_running and runs_waiting once for each job
LIVE_RUNS: Final = f"""
    SELECT r.job_id, r.id, r.state FROM (SELECT id {_DUE}) j
    CROSS JOIN runs r INDEXED BY runs_running ON r.job_id = j.id AND r.state = 'running'
    UNION ALL
    SELECT r.job_id, r.id, r.state FROM (SELECT id {_DUE}) j
    CROSS JOIN runs r INDEXED BY runs_waiting ON r.job_id = j.id AND r.state IN ('pending', 'retrying')
        AND (r.state = 'retrying' OR r.trigger = 'schedule')"""
#: by rowid. A claimed job is enabled, and mostly stays so
ADVANCE: Final = Bulk(
    "UPDATE jobs SET next_at = v.column1, wake_at = v.column2, run_count = v.column3 FROM (VALUES",
    f"({marks(4)})",
    ") v WHERE jobs.rowid = v.column4",
)
#: by rowid
HALT: Final = """
    UPDATE jobs SET enabled = ?, disabled_reason = ?, decided_ticks = coalesce(?, decided_ticks)
    WHERE rowid = ?"""
#: the primary key, once for each. Their last tick was skipped, so no run can end them
REFUSED: Final = """
    SELECT id, workspace, agent, name FROM jobs
    WHERE id IN (SELECT value FROM json_each(?)) AND enabled AND next_at IS NULL AND wake_at IS NULL"""
#: the primary key
END_REFUSED: Final = "UPDATE jobs SET enabled = 0, disabled_reason = 'no_more_ticks' WHERE id = ?"
# --- new runs -------------------------------------------------------------------------------------------

_NEW_RUN: Final = (*fields_before(NewRun, "details"), "is_pull", "claim_deadline_ms", "created_ms")
# The fields of a new run that is running or pending and has nothing unusual; and `serial` and `created_ms`.
_TICK: Final = (
    *("id", "job_id", "workspace", "agent", "job_name", "scheduled_ms", "fire_ms", "trigger", "covers"),
    *("attempt", "lane", "idempotency_key", "requires"),
)
RUNNING_FIELDS: Final = (*_TICK, "worker", "started_ms")
PENDING_FIELDS: Final = (*_TICK, "due_ms")
# runs_tick rejects a second run of a tick. Binding a None costs ten times as much as binding a number, so the
# two most frequent shapes of new runs have statements without their NULL columns.
INSERT_RUNNING: Final = Bulk(
    f"INSERT INTO runs ({column_list(RUNNING_FIELDS)}, serial, created_at, state) VALUES",
    f"({marks(len(RUNNING_FIELDS) + 2)}, 'running')",
    "ON CONFLICT DO NOTHING",
)
INSERT_PENDING: Final = Bulk(
    f"INSERT INTO runs ({column_list(PENDING_FIELDS)}, serial, created_at, state) VALUES",
    f"({marks(len(PENDING_FIELDS) + 2)}, 'pending')",
    "ON CONFLICT DO NOTHING",
)
INSERT_RUNS: Final = f"""
    INSERT INTO runs ({column_list(_NEW_RUN)}) VALUES ({marks(len(_NEW_RUN))}) ON CONFLICT DO NOTHING"""
INSERT_SIGNALS: Final = f"""
    INSERT INTO runs ({column_list(_NEW_RUN)}, sequence)
    VALUES ({marks(len(_NEW_RUN) + 1)}) ON CONFLICT DO NOTHING"""
#: the primary key
SET_DETAILS: Final = "UPDATE runs SET session = ?, depth = ?, context = ?, chain_length = ? WHERE id = ?"
#: the primary key, once for each
WHICH_EXIST: Final = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?))"

# --- running --------------------------------------------------------------------------------------------

_TAKEN_RUN: Final = select_list(
    fields_before(TakenRun, "slot"),
    "r",
    {
        "attempt": f"r.attempt + (r.state = 'retrying' AND r.reason IS NOT '{TAKEN_OVER}')",
        "policy": "coalesce(j.policy, c.policy, '{}')",
        "work": "coalesce(j.work, '{}')",
        "payload": "coalesce(r.payload, j.payload)",
        "secret": "j.secret",
        "old_secret": "j.old_secret",
        "old_secret_until_ms": "j.old_secret_until",
        "timing": "j.timing",
        "anchor_ms": "j.anchor_at",
        "precheck_state": "j.precheck_state",
        "precheck_revision": "coalesce(j.precheck_revision, 0)",
        "data": "i.data",
        "state_version": "coalesce(i.version, 0)",
        "revision": "coalesce(i.revision, 0)",
        "memory": "i.memory",
        "instance_created_ms": "i.created_at",
    },
)
#: the columns of `TakenRun`, when it was due, and the rowid: as `leases.DueRun`
DUE_RUN: Final = f"{_TAKEN_RUN}, r.due_at, r.rowid"
#: the primary keys of jobs, instances and agent_classes, once for each; a run without an instance has neither
#: of the latter
OF_DUE_RUN: Final = """
    LEFT JOIN jobs j ON j.id = r.job_id LEFT JOIN instances i ON i.id = r.instance_id
    LEFT JOIN agent_classes c ON c.workspace = i.workspace AND c.agent = i.agent"""
HAS_THE_TURN: Final = running.HAS_THE_TURN.sqlite
#: runs_due: the first entry of each lane and requirement: which of them have due runs, longest due first
FIRST_DUE: Final = """
    SELECT l.value, c.key, c.value, (SELECT min(due_at) FROM runs INDEXED BY runs_due
        WHERE lane = l.value AND is_pull = 0 AND requires = c.key AND due_at <= ?1
        AND state IN ('pending', 'retrying') AND requires_version <= c.value) AS first_due_at
    FROM json_each(?2) l CROSS JOIN json_each(?3) c
    WHERE first_due_at IS NOT NULL ORDER BY first_due_at"""
#: runs_due: a range of it, in its order
TAKE: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_due {OF_DUE_RUN}
    WHERE r.lane = ? AND r.is_pull = 0 AND r.requires = ? AND r.requires_version <= ? AND r.due_at <= ?
        AND r.state IN ('pending', 'retrying') AND r.losses = 0 AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?"""
#: runs_due: the owner of its first entry
FIRST_OWNER: Final = """
    SELECT workspace, agent FROM runs INDEXED BY runs_due
    WHERE lane = ? AND is_pull = 0 AND requires = ? AND due_at <= ? AND state IN ('pending', 'retrying')
        AND requires_version <= ?
    ORDER BY due_at LIMIT 1"""


def _owner_after(comparison: str) -> str:
    return f"""
    SELECT workspace, agent, due_at FROM runs INDEXED BY runs_of_owner
    WHERE lane = ?1 AND requires = ?2 AND is_pull = 0 AND losses = 0 AND state IN ('pending', 'retrying')
        AND due_at IS NOT NULL AND (workspace, agent) {comparison} (?3, ?4)
    ORDER BY workspace, agent, due_at LIMIT 1"""


#: runs_of_owner: the first entry of the next owner, or of this one
NEXT_OWNER: Final = _owner_after(">")
THIS_OR_NEXT_OWNER: Final = _owner_after(">=")
#: the primary key, once for each
LANE_WEIGHTS: Final = """
    SELECT w.name, w.lane_weight FROM json_each(?) n CROSS JOIN workspaces w ON w.name = n.value
    WHERE w.lane_weight <> 1"""
#: runs_of_owner: a range of it, in its order
TAKE_OF_OWNER: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_of_owner {OF_DUE_RUN}
    WHERE r.lane = ? AND r.is_pull = 0 AND r.requires = ? AND r.requires_version <= ? AND r.workspace = ?
        AND r.agent = ? AND r.due_at <= ? AND r.state IN ('pending', 'retrying') AND r.losses = 0
        AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?"""
#: runs_of_owner: its first entry that may start, once for each owner (requirement, version, workspace, agent)
TAKE_FIRST_OF_OWNERS: Final = f"""
    SELECT {DUE_RUN} FROM json_each(?2) e CROSS JOIN runs r ON r.rowid = (
        SELECT r.rowid FROM runs r INDEXED BY runs_of_owner
        WHERE r.lane = ?1 AND r.is_pull = 0 AND r.requires = json_extract(e.value, '$[0]')
            AND r.requires_version <= json_extract(e.value, '$[1]')
            AND r.workspace = json_extract(e.value, '$[2]') AND r.agent = json_extract(e.value, '$[3]')
            AND r.due_at <= ?3 AND r.state IN ('pending', 'retrying') AND r.losses = 0
            AND (NOT r.serial OR ({HAS_THE_TURN}))
        ORDER BY r.due_at, r.rowid LIMIT 1)
    {OF_DUE_RUN}"""
#: runs_suspect, in its order
TAKE_SUSPECTS: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_suspect {OF_DUE_RUN}
    WHERE r.losses > 0 AND r.due_at <= ?1 AND r.is_pull = 0 AND r.state IN ('pending', 'retrying')
        AND (?4 = 1 OR r.losses = 1)
        AND r.lane IN (SELECT value FROM json_each(?2))
        AND EXISTS (SELECT 1 FROM json_each(?3) c WHERE c.key = r.requires AND c.value >= r.requires_version)
        AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?4"""
#: the primary key of instances, the beginning of a range of runs_mailbox, and runs_exposed, once for each
#: instance: the run that follows the one that ended in that lane. It need not be exposed
TAKE_NEXT: Final = f"""
    SELECT {DUE_RUN} FROM json_each(?1) e CROSS JOIN instances n ON n.id = e.key AND n.status = 'active'
    CROSS JOIN runs r ON r.rowid = (SELECT rowid FROM runs INDEXED BY runs_mailbox
        WHERE instance_id = e.key AND state = 'pending' ORDER BY fire_at, sequence LIMIT 1)
    CROSS JOIN json_each(?2) has ON has.key = r.requires AND has.value >= n.version
    {OF_DUE_RUN}
    WHERE r.fire_at <= ?3 AND r.lane = e.value
        AND NOT EXISTS (SELECT 1 FROM runs x INDEXED BY runs_exposed WHERE x.instance_id = e.key
            AND (x.state IN ('running', 'retrying') OR x.state = 'pending' AND x.due_at IS NOT NULL)
            AND x.rowid <> r.rowid)"""
#: by rowid
MARK_NEXT_TAKEN: Final = """
    UPDATE runs SET state = 'running', worker = ?, started_at = ?, due_at = NULL, beat_at = NULL,
        requires_version = ?
    WHERE rowid = ?"""
#: by rowid
MARK_TAKEN: Final = Bulk(
    """UPDATE runs SET state = 'running', worker = ?1, started_at = ?2, attempt = v.column1, due_at = NULL,
        beat_at = NULL, claim_id = NULL, waiting = NULL FROM (VALUES""",
    f"({marks(2)})",
    ") v WHERE runs.rowid = v.column2",
    shared=2,
)
# --- outcomes -------------------------------------------------------------------------------------------

# The fence: run, attempt and worker; the worker is '' for whichever executor has claimed the run. The primary
# key finds the run. The shapes are as for new runs.
_HELD: Final = """({0}.worker IS {1}
        OR {1} = '' AND {0}.is_pull AND {0}.worker IS NOT NULL AND NOT {0}.awaiting_callback)"""
FENCE: Final = f"""WHERE id = :run_id AND attempt = :attempt AND state = 'running'
        AND {_HELD.format("runs", ":worker")}"""
#: the primary key. A run that is being verified was reported already
HOLDER: Final = """
    SELECT worker, is_pull, instance_id FROM runs
    WHERE id = ? AND attempt = ? AND state = 'running' AND NOT (awaiting_callback AND due_at IS NULL)"""
FENCE_OF_MANY: Final = f"""WHERE runs.id = v.column1 AND runs.attempt = v.column2 AND runs.state = 'running'
        AND {_HELD.format("runs", "?1")}"""
_SUCCEED: Final = """UPDATE runs SET state = 'succeeded', started_at = v.column3, finished_at = v.column4,
        due_at = NULL, error = NULL, reason = NULL, usage = NULL, awaiting_callback = 0"""
SUCCEED: Final = Bulk(
    f"{_SUCCEED}, output = NULL, response_code = NULL FROM (VALUES",
    f"({marks(4)})",
    f") v {FENCE_OF_MANY}",
    shared=1,
)
SUCCEED_WITH_OUTPUT: Final = Bulk(
    f"{_SUCCEED}, output = v.column5, response_code = NULL FROM (VALUES",
    f"({marks(5)})",
    f") v {FENCE_OF_MANY}",
    shared=1,
)
SUCCEED_WITH_RESPONSE: Final = Bulk(
    f"{_SUCCEED}, output = v.column5, response_code = v.column6 FROM (VALUES",
    f"({marks(6)})",
    f") v {FENCE_OF_MANY}",
    shared=1,
)
# A pull run that is retried waits for an executor as long as the first time. Its job may have got another
# target meanwhile (`waiting_runs.FOLLOW`).
FINISH: Final = f"""
    UPDATE runs SET is_pull = iif(:retrying, claim_timeout_ms IS NOT NULL, is_pull),
        claim_deadline = coalesce(claim_timeout_ms + iif(:retrying, :due_ms, NULL), claim_deadline),
        state = :state, started_at = :started_ms, finished_at = iif(:over, :finished_ms, NULL),
        due_at = iif(:over, NULL, :due_ms), worker = iif(:over, worker, NULL), output = :output,
        error = :error, reason = :reason, usage = :usage, dead = :state = 'failed',
        failed_attempts = :failed_attempts, response_code = :response_code,
        awaiting_callback = :state = 'running'
    {FENCE}"""
#: the primary key, once for each
WHICH_ARE_HELD: Final = f"""
    SELECT r.id, r.attempt FROM json_each(?1) h CROSS JOIN runs r ON r.id = h.value
    WHERE r.state = 'running' AND {_HELD.format("r", "?2")}"""
#: the attempts' primary key
ADD_ATTEMPT: Final = f"""
    INSERT INTO attempts (run_id, {column_list(AttemptView._fields)})
    VALUES ({marks(len(AttemptView._fields) + 1)})"""
#: jobs_failing and job_incidents_open; mostly they are empty, and then no success need look at its job
ANY_FAILING: Final = """
    SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_failing WHERE failures > 0 AND id > '')
        OR EXISTS (SELECT 1 FROM job_incidents INDEXED BY job_incidents_open WHERE closed_at IS NULL)"""
#: jobs_failing and job_incidents_cause, once for each; the primary key of jobs for what is found
FAILING: Final = """
    SELECT j.id, j.failures FROM json_each(?1) e CROSS JOIN jobs j INDEXED BY jobs_failing ON j.id = e.value
    WHERE j.failures > 0
    UNION SELECT j.id, j.failures FROM json_each(?1) e
    CROSS JOIN job_incidents i INDEXED BY job_incidents_cause ON i.job_id = e.value
    CROSS JOIN jobs j ON j.id = i.job_id WHERE i.closed_at IS NULL"""
#: the jobs' primary key, once for each
FAILURES: Final = "SELECT j.id, j.failures FROM json_each(?) e CROSS JOIN jobs j ON j.id = e.value"
#: the jobs' primary key, once for each
WITH_NEXT: Final = """
    SELECT j.id FROM json_each(?) e CROSS JOIN jobs j ON j.id = e.value
    WHERE j.next_at IS NOT NULL AND j.deleted_at IS NULL"""
#: the jobs' primary key
SET_FAILURES: Final = "UPDATE jobs SET failures = ? WHERE id = ?"
#: the jobs' primary key; runs_tick: its few entries after that instant. Also of a job that would
#: resume by itself
DISABLE_JOB: Final = f"""
    UPDATE jobs SET enabled = 0, disabled_reason = ?1, next_at = NULL, wake_at = NULL, updated_at = ?2,
        version = version + 1, pause_note = NULL, pause_until = NULL,
        decided_ticks = coalesce((SELECT group_concat(scheduled_at) FROM (
            SELECT scheduled_at FROM runs INDEXED BY runs_tick
            WHERE scheduled_at > ?2 AND job_id = ?3 AND trigger = 'schedule' ORDER BY scheduled_at)),
            decided_ticks)
    WHERE id = ?3 AND deleted_at IS NULL
        AND (enabled OR pause_until IS NOT NULL OR disabled_reason = '{AGENT_INACTIVE}')"""
#: the primary keys of runs and jobs, once for each
EDITS: Final = """
    SELECT r.id, r.created_at, j.updated_at, j.id FROM json_each(?) e CROSS JOIN runs r ON r.id = e.value
    CROSS JOIN jobs j ON j.id = r.job_id
    WHERE j.next_at IS NOT NULL"""
#: jobs_after; mostly empty: then there are no follow-up runs
ANY_FOLLOWER: Final = """
    SELECT 1 FROM jobs INDEXED BY jobs_after
    WHERE workspace > '' AND after_job IS NOT NULL AND deleted_at IS NULL LIMIT 1"""
#: the primary keys of runs and jobs, then jobs_after, once for each
FOLLOWERS: Final = """
    SELECT f.id, f.workspace, f.agent, f.name, f.policy, f.work, r.id, f.after_on, 0, f.after_job, r.depth,
        r.chain_length
    FROM json_each(?) e CROSS JOIN runs r ON r.id = e.value CROSS JOIN jobs j ON j.id = r.job_id
    CROSS JOIN jobs f INDEXED BY jobs_after
        ON f.workspace = j.workspace AND f.agent = j.agent AND f.after_job = j.name
        AND f.deleted_at IS NULL
    WHERE f.enabled LIMIT coalesce(?, -1)"""
#: the runs' primary key, jobs_name and runs_waiting, once for each
HEARTBEATS: Final = f"""
    SELECT h.id, h.workspace, h.agent, h.name, h.policy, h.work, r.id, 'finished', EXISTS (
        SELECT 1 FROM runs w INDEXED BY runs_waiting
        WHERE w.job_id = h.id AND w.state IN ('pending', 'retrying') AND w.state = 'pending'
        AND w.trigger <> 'schedule'), '', r.depth, r.chain_length
    FROM json_each(?) e CROSS JOIN runs r ON r.id = e.value
    CROSS JOIN jobs h INDEXED BY jobs_name
        ON h.workspace = r.workspace AND h.agent = r.agent AND h.name = '{HEARTBEAT}'
        AND h.deleted_at IS NULL
    WHERE h.enabled AND h.labels = '{HEARTBEAT_LABELS}'"""
#: runs_waiting; mostly empty: then no run waits for its turn
ANY_WAITING: Final = """
    SELECT 1 FROM runs INDEXED BY runs_waiting
    WHERE job_id > '' AND state IN ('pending', 'retrying') LIMIT 1"""
#: runs_waiting, an entry for each job: the topic for the runs that wait for these jobs. All that wait for one
#: job wait alike
WAITING_OF: Final = f"""
    SELECT max((SELECT CASE WHEN r.is_pull THEN '{PULL_RUNS}' ELSE '{RUNS}' END
        FROM runs r INDEXED BY runs_waiting
        WHERE r.job_id = e.value AND r.state IN ('pending', 'retrying') LIMIT 1))
    FROM (SELECT DISTINCT value FROM json_each(?)) e"""

# --- cancelling -----------------------------------------------------------------------------------------

#: runs_waiting and runs_running. A tick that is not pending is recorded ahead if it fires after ?3
NOT_STARTED: Final = """
    SELECT id, state, instance_id FROM runs INDEXED BY runs_waiting
    WHERE job_id = ?1 AND state IN ('pending', 'retrying')
        AND (trigger = 'schedule' OR ?2 AND state = 'pending') AND (state = 'pending' OR fire_at > ?3)
    UNION ALL SELECT id, state, instance_id FROM runs INDEXED BY runs_running
    WHERE job_id = ?1 AND state = 'running' AND trigger = 'schedule' AND fire_at > ?3"""
#: the primary key
WITHDRAW: Final = """
    UPDATE runs SET state = 'cancelled', reason = ?, finished_at = ?, due_at = NULL, started_at = NULL,
        worker = NULL
    WHERE id = ?"""
#: the primary key
CANCEL: Final = """
    UPDATE runs SET state = 'cancelled', reason = ?, finished_at = ?, due_at = NULL, awaiting_callback = 0
    WHERE id = ? AND state IN ('pending', 'retrying', 'running')"""
STATE: Final = "SELECT state, job_id, instance_id FROM runs WHERE id = ?"

#: runs_running and runs_waiting: a run, its attempt, worker and tick, and whether it was released before
AHEAD: Final = """
    SELECT id, attempt, worker, scheduled_at, 0 FROM runs INDEXED BY runs_running
    WHERE job_id = ?1 AND state = 'running' AND trigger = 'schedule' AND fire_at > ?2
    UNION ALL SELECT id, attempt, worker, scheduled_at, 1 FROM runs INDEXED BY runs_waiting
    WHERE job_id = ?1 AND state IN ('pending', 'retrying') AND state = 'retrying' AND trigger = 'schedule'
        AND fire_at > ?2 AND started_at IS NULL"""

# --- rescuing and pruning -------------------------------------------------------------------------------

_LOST_RUN: Final = select_list(
    fields_before(UnfinishedRun, "companions"),
    "r",
    {
        "policy": "coalesce(j.policy, c.policy, '{}')",
        "response_code": "CASE WHEN r.awaiting_callback THEN r.response_code END",
        "work": "coalesce(j.work, '{}')",
    },
)
#: runs_running, all of it: it holds running runs and nothing else
LOST: Final = f"""
    SELECT {_LOST_RUN}
    FROM runs r INDEXED BY runs_running
    LEFT JOIN workers w ON w.name = r.worker LEFT JOIN jobs j ON j.id = r.job_id
    LEFT JOIN agent_classes c ON r.instance_id IS NOT NULL AND c.workspace = r.workspace AND c.agent = r.agent
    WHERE r.state = 'running'
    AND CASE WHEN r.awaiting_callback THEN r.due_at <= ?2 AND coalesce(r.started_at, r.fire_at) >= ?4
        ELSE coalesce(r.beat_at, w.beat_at, r.started_at, r.fire_at) < ?1
            AND NOT (r.is_pull AND r.started_at < ?4) END
    ORDER BY r.started_at, r.id LIMIT ?3"""
#: the primary key
ADD_LOSS: Final = "UPDATE runs SET losses = losses + 1 WHERE id = ?"
#: the primary key
CLEAR_LOSSES: Final = "UPDATE runs SET losses = 0 WHERE id = ?"
DEAD_WORKERS: Final = "SELECT name FROM workers WHERE beat_at < ?"
#: runs_running, all of it
BUSY_WORKERS: Final = """
    SELECT DISTINCT worker FROM runs INDEXED BY runs_running WHERE state = 'running' AND NOT is_pull"""
#: runs_running, all of it
HELD_COUNTS: Final = """
    SELECT coalesce(worker, ''), count(*) FROM runs INDEXED BY runs_running
    WHERE state = 'running' AND NOT is_pull GROUP BY 1"""
DELETE_WORKER: Final = "DELETE FROM workers WHERE name = ?"
#: runs_running, all of it: `HeldRun` and its instance. An index by worker would cost every run a tenth of
#: its writes
HELD_BY: Final = """
    SELECT id, attempt, worker, iif(fire_at <= ?2, started_at, NULL), instance_id
    FROM runs INDEXED BY runs_running WHERE state = 'running' AND worker = ?1 AND NOT is_pull"""
#: the primary key
RELEASE: Final = f"""
    UPDATE runs SET state = 'retrying', worker = NULL, reason = nullif(reason, '{TAKEN_OVER}'),
        due_at = max(?1, fire_at), error = 'released', started_at = iif(fire_at <= ?1, started_at, NULL),
        is_pull = claim_timeout_ms IS NOT NULL,
        claim_deadline = coalesce(claim_timeout_ms + max(?1, fire_at), claim_deadline)
    WHERE id = ?2"""
#: runs_finished: a range of it, in its order
PRUNABLE: Final = """
    SELECT rowid, id, job_id FROM runs INDEXED BY runs_finished
    WHERE finished_at < ? AND NOT dead ORDER BY finished_at LIMIT ?"""
DELETE_RUN: Final = "DELETE FROM runs WHERE rowid = ?"
#: the attempts' primary key
DELETE_ATTEMPTS: Final = "DELETE FROM attempts WHERE run_id = ?"
#: the deliveries' primary key
DELETE_DELIVERY: Final = "DELETE FROM deliveries WHERE run_id = ?"
#: the jobs' primary key and runs_of_job
DELETE_JOB_WITHOUT_RUNS: Final = """
    DELETE FROM jobs WHERE id = ?1 AND deleted_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_of_job WHERE job_id = ?1)"""
#: the primary keys of revisions and jobs
DELETE_REVISIONS_WITHOUT_JOB: Final = """
    DELETE FROM job_revisions WHERE job_id = ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = ?1)"""

# --- jobs -----------------------------------------------------------------------------------------------

#: `JobRow`
JOB_COLUMNS: Final = column_list(JobRow._fields)
_FIXED: Final = ("id", "workspace", "created_at")
_JOB_VALUES: Final = {column: f"v.column{number}" for number, column in enumerate(JOB_COLUMNS.split(", "), 1)}
_NEW_KINDS: Final = f"{jobs.SCHEDULE_KIND}, {jobs.TARGET_KIND}".format(**_JOB_VALUES)
CREATE_JOB: Final = Bulk(
    f"""INSERT INTO jobs ({JOB_COLUMNS}, schedule_kind, target_kind)
    SELECT {", ".join(_JOB_VALUES.values())}, {_NEW_KINDS} FROM (VALUES""",
    f"({marks(len(_JOB_VALUES))})",
    ") v",
)
#: the primary key; the parameters are a whole `JobRow`, of which `_FIXED` stay as they are
CHANGE_JOB: Final = (
    "UPDATE jobs SET "
    + ", ".join(f"{c} = ?{n}" for n, c in enumerate(JOB_COLUMNS.split(", "), 1) if c not in _FIXED)
    + " WHERE id = ?1"
)
#: jobs_name: a range of it
JOBS_OF_AGENT: Final = f"""
    SELECT {JOB_COLUMNS} FROM jobs INDEXED BY jobs_name
    WHERE workspace = ? AND agent = ? AND deleted_at IS NULL"""
#: the primary key
JOB_BY_ID: Final = translate(jobs.JOB_BY_ID)
#: the primary key
JOB_NAMES: Final = "SELECT id, workspace, agent, name FROM jobs WHERE id = ?"
#: the primary key
MARK_DELETED: Final = """
    UPDATE jobs SET deleted_at = ?1, updated_at = ?1, next_at = NULL, wake_at = NULL, version = version + 1
    WHERE id = ?2 AND deleted_at IS NULL"""
