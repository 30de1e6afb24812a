"""The statements of the SQLite store for runs that executors claim, each with its index.

The rules are those of `statements`. `claim_timeout_ms` is how long such a run waits for an executor each time
it is due. `claim_deadline` is the end of its current or last wait.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.sqlite.statements import DUE_RUN, HAS_THE_TURN, OF_DUE_RUN

_WAITING: Final = "r.state IN ('pending', 'retrying')"
_WAITING_PULL: Final = f"{_WAITING} AND r.is_pull"
_OF_LANES: Final = "(?3 IS NULL OR r.lane IN (SELECT value FROM json_each(?3)))"
#: runs_claimable: a range of it, in its order
CLAIMABLE: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_claimable {OF_DUE_RUN}
    WHERE r.workspace = ?1 AND r.due_at <= ?2 AND {_WAITING_PULL} AND {_OF_LANES}
        AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?4"""
#: runs_claimable_of_agent: a range of it, in its order
CLAIMABLE_OF_AGENT: Final = f"""
    SELECT {DUE_RUN} FROM runs r INDEXED BY runs_claimable_of_agent {OF_DUE_RUN}
    WHERE r.workspace = ?1 AND r.agent = ?5 AND r.due_at <= ?2 AND {_WAITING_PULL} AND {_OF_LANES}
        AND (NOT r.serial OR ({HAS_THE_TURN}))
    ORDER BY r.due_at, r.rowid LIMIT ?4"""
#: the primary key of runs, once for each
TAKEN_RUNS: Final = f"""
    SELECT {DUE_RUN} FROM json_each(?1) e CROSS JOIN runs r ON r.id = e.value {OF_DUE_RUN}"""
#: by rowid
MARK_CLAIMED: Final = """
    UPDATE runs SET state = 'running', worker = ?1, started_at = ?2, attempt = ?3, beat_at = ?2,
        due_at = NULL, claim_id = ?5, waiting = NULL
    WHERE rowid = ?4"""
#: the primary keys of runs and jobs, once for each. With the rowid last. One that is being verified is over
#: for its executor
CLAIMED: Final = """
    SELECT r.id, r.job_id, r.attempt, coalesce(j.policy, '{}'), r.started_at, r.worker,
        r.failed_attempts, NULL, r.is_pull, r.awaiting_callback, r.rowid
    FROM json_each(?1) h CROSS JOIN runs r ON r.id = json_extract(h.value, '$[0]')
    LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.attempt = json_extract(h.value, '$[1]') AND r.state = 'running'
        AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = ?2
        AND (?3 IS NULL OR r.agent = ?3) AND (?4 IS NULL OR r.worker = ?4)"""
#: by rowid. The work of a run that waits has not started
RENEW: Final = """
    UPDATE runs SET beat_at = ?1, waiting = json_extract(h.value, '$[1]'),
        started_at = iif(json_extract(h.value, '$[1]') IS NULL, started_at, ?1)
    FROM json_each(?2) h WHERE runs.rowid = json_extract(h.value, '$[0]')"""
_RETURNABLE: Final = """
    r.state = 'running' AND r.is_pull AND NOT r.awaiting_callback AND r.workspace = ?2
    AND (?3 IS NULL OR r.agent = ?3) AND r.worker = ?4"""
_RETURNED: Final = "r.id, r.attempt, r.worker, iif(r.fire_at <= ?5, r.started_at, NULL)"
#: the primary key of runs, once for each. What is released of each run
RETURNABLE: Final = f"""
    SELECT {_RETURNED} FROM json_each(?1) h CROSS JOIN runs r ON r.id = json_extract(h.value, '$[0]')
    WHERE r.attempt = json_extract(h.value, '$[1]') AND {_RETURNABLE}"""
#: runs_running, all of it: as `statements.HELD_BY`
RETURNABLE_OF_CLAIM: Final = f"""
    SELECT {_RETURNED} FROM runs r INDEXED BY runs_running
    WHERE r.claim_id = ?1 AND {_RETURNABLE}"""
#: the primary key of workflows, once for each
WORKFLOWS: Final = """
    SELECT w.workspace, w.id, w.version, w.dag, w.created_at FROM json_each(?2) k
    CROSS JOIN workflows w ON w.workspace = ?1 AND w.id = json_extract(k.value, '$[0]')
        AND w.version = json_extract(k.value, '$[1]')"""
#: runs_claimable: the first matching entry after that instant
NEXT_CLAIMABLE: Final = f"""
    SELECT r.due_at FROM runs r INDEXED BY runs_claimable
    WHERE r.workspace = ?1 AND r.due_at > ?2 AND {_WAITING_PULL} AND {_OF_LANES}
        AND (?4 IS NULL OR r.agent IN (SELECT value FROM json_each(?4)))
    ORDER BY r.due_at LIMIT 1"""

# runs_running and runs_waiting, once for each. True if another run of its job is running or retrying: then
# this one waits for its turn, not for an executor.
_BUSY: Final = """
    r.serial AND (
        EXISTS (SELECT 1 FROM runs o INDEXED BY runs_running
            WHERE o.job_id = r.job_id AND o.state = 'running')
        OR EXISTS (SELECT 1 FROM runs o INDEXED BY runs_waiting
            WHERE o.job_id = r.job_id AND o.state IN ('pending', 'retrying') AND o.state = 'retrying'
            AND o.id <> r.id))"""
_OUT_OF_TURN: Final = f"""
    CROSS JOIN runs r INDEXED BY runs_waiting ON r.job_id = o.job_id AND {_WAITING}
    WHERE r.serial AND r.claim_deadline <= ?1 AND r.due_at <= ?2"""
#: all of runs_running and runs_retrying, which have only such runs; runs_waiting, once for each
BLOCKED: Final = f"""
    SELECT r.rowid FROM runs o INDEXED BY runs_running {_OUT_OF_TURN} AND o.state = 'running'
    UNION ALL
    SELECT r.rowid FROM runs o INDEXED BY runs_retrying {_OUT_OF_TURN}
        AND o.state = 'retrying' AND o.claim_deadline IS NOT NULL AND r.state = 'pending' LIMIT ?3"""
#: by rowid
RESTART_WAIT: Final = "UPDATE runs SET due_at = ?1, claim_deadline = ?1 + claim_timeout_ms WHERE rowid = ?2"
#: runs_unclaimed: a range of it, in its order
EXPIRED: Final = f"""
    SELECT r.id, r.job_id, r.attempt, coalesce(j.policy, '{{}}'), r.started_at, r.worker,
        r.failed_attempts, NULL, r.is_pull, r.awaiting_callback
    FROM runs r INDEXED BY runs_unclaimed LEFT JOIN jobs j ON j.id = r.job_id
    WHERE r.claim_deadline <= ?1 AND {_WAITING} AND NOT ({_BUSY})
    ORDER BY r.claim_deadline, r.rowid LIMIT ?2"""
#: runs_waiting. What a signal requires follows from its instance
MOVE: Final = """
    UPDATE runs INDEXED BY runs_waiting SET lane = ?2, is_pull = ?4 IS NOT NULL,
        claim_timeout_ms = ?4, claim_deadline = max(due_at, ?3) + ?4,
        requires = iif(instance_id IS NULL, ?5, requires)
    WHERE job_id = ?1 AND state IN ('pending', 'retrying')
        AND (lane <> ?2 OR is_pull <> (?4 IS NOT NULL) OR instance_id IS NULL AND requires <> ?5)"""
#: runs_running. The next attempt of a running run has the changed target too: `claim_timeout_ms` says whether
#: an executor claims it. `is_pull` follows when the run waits again
FOLLOW: Final = """
    UPDATE runs INDEXED BY runs_running SET requires = ?2, lane = ?3, claim_timeout_ms = ?4,
        claim_deadline = iif(?4 IS NULL, NULL, claim_deadline)
    WHERE job_id = ?1 AND state = 'running' AND instance_id IS NULL"""
#: the primary key. The fence of `finish` requires a running run; this one has no worker
MARK_EXPIRED: Final = "UPDATE runs SET state = 'running', due_at = NULL WHERE id = ?"
#: the primary key
CLEAR_START: Final = "UPDATE runs SET started_at = NULL WHERE id = ?"
