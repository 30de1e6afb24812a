"""The statements of the PostgreSQL store for instances and their mailboxes, each with its index.

The rules are those of `statements`. The row of an instance is locked before the rows of its runs. So only the
transaction that holds the lock changes which of its runs is exposed; `take` changes an exposed run to a
running one without the lock, and locks the row of the run.
"""

from __future__ import annotations

from typing import Final

from wakeful.store.mailbox_rules import DELAY_SOURCE, USUAL_MAILBOX
from wakeful.store.postgres.statements import NEW_RUN_COLUMNS, taken_runs
from wakeful.store.sql.instances import CLASS_COLUMNS

#: the jobs' primary key, and job_incidents_cause once for each. Jobs are locked before instances: these are
#: the ones whose failures may change
LOCK_FAILING: Final = """
    SELECT FROM jobs j WHERE j.id = ANY($1::uuid[]) AND (j.failures > 0 OR j.id = ANY($2::uuid[])
        OR EXISTS (SELECT FROM job_incidents i WHERE i.job_id = j.id AND i.closed_at IS NULL))
    ORDER BY j.id FOR UPDATE"""

# --- instances ------------------------------------------------------------------------------------------

#: the primary key, once for each, in the order given. Adds those that do not exist, locks all of them and
#: reserves numbers for new signals
ADD_INSTANCES: Final = """
    INSERT INTO instances AS i (id, workspace, agent, name, status, sequence, created_at, updated_at)
    SELECT k.id, k.workspace, k.agent, k.name, 'active', k.signals, $6, $6
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[])
        k (id, workspace, agent, name, signals)
    ON CONFLICT (id) DO UPDATE SET sequence = i.sequence + EXCLUDED.sequence
    RETURNING i.id::text, i.status, i.sequence, i.xmax = 0"""
#: the primary key, once for each; returns which were added
ADD_MISSING: Final = """
    INSERT INTO instances (id, workspace, agent, name, status, created_at, updated_at)
    SELECT k.id, k.workspace, k.agent, k.name, 'active', $5, $5
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) k (id, workspace, agent, name)
    ON CONFLICT (id) DO NOTHING RETURNING id::text"""
#: Instances of one workspace are added one after the other if their number is limited.
LOCK_LIMITS: Final = "SELECT pg_advisory_xact_lock(hashtextextended('wakeful instances ' || $1, 0))"
#: the primary key
DELETE_INSTANCES: Final = "DELETE FROM instances WHERE id = ANY($1::uuid[])"
#: the primary key
LOCK_INSTANCES: Final = """
    SELECT id::text, status, revision FROM instances WHERE id = ANY($1::uuid[])
    ORDER BY id FOR UPDATE"""
#: the primary keys of runs and instances
LOCK_INSTANCES_OF_RUNS: Final = """
    SELECT id::text FROM instances
    WHERE id = ANY(ARRAY(SELECT instance_id FROM runs WHERE id = ANY($1::uuid[]) AND instance_id IS NOT NULL))
    ORDER BY id FOR UPDATE"""
#: live_runs_of_job, once for each, and the primary key of instances
LOCK_INSTANCES_OF_JOBS: Final = """
    SELECT id::text FROM instances
    WHERE id = ANY(ARRAY(
        SELECT l.instance_id FROM unnest($1::uuid[]) j (id) CROSS JOIN LATERAL (
            SELECT instance_id FROM live_runs WHERE job_id = j.id AND instance_id IS NOT NULL OFFSET 0) l))
    ORDER BY id FOR UPDATE"""
#: live_runs_of_job, once for each
WITH_PENDING: Final = """
    SELECT j.id::text FROM unnest($1::uuid[]) j (id) CROSS JOIN LATERAL (
        SELECT FROM live_runs l WHERE l.job_id = j.id AND l.state = 'pending' LIMIT 1) l"""
#: live_runs_of_job, once for each job, and the primary key of instances; also the instances given
LOCK_INSTANCES_FOR_MOVE: Final = """
    SELECT id::text FROM instances
    WHERE id = ANY($2::uuid[] || ARRAY(
        SELECT l.instance_id FROM unnest($1::uuid[]) j (id) CROSS JOIN LATERAL (
            SELECT instance_id FROM live_runs WHERE job_id = j.id AND instance_id IS NOT NULL OFFSET 0) l))
    ORDER BY id FOR UPDATE"""
#: live_runs_held; the primary key of instances
LOCK_INSTANCES_HELD_BY: Final = """
    SELECT id::text FROM instances
    WHERE id = ANY(ARRAY(
        SELECT instance_id FROM live_runs
        WHERE coalesce(state, '') = 'running' AND worker = $1 AND instance_id IS NOT NULL))
    ORDER BY id FOR UPDATE"""

#: the primary key, once for each. The rows are locked
RESERVE: Final = """
    UPDATE instances i SET sequence = i.sequence + k.signals
    FROM unnest($1::uuid[], $2::bigint[]) k (id, signals) WHERE i.id = k.id
    RETURNING i.id::text, i.sequence"""
#: the primary key, once for each
UPDATE_INSTANCES: Final = """
    UPDATE instances i SET handled_at = u.handled_at, updated_at = $8,
        data = coalesce(u.data, i.data), revision = i.revision + (u.data IS NOT NULL)::integer,
        version = CASE WHEN u.data IS NULL THEN i.version ELSE u.version END,
        memory = coalesce(u.memory, i.memory), status = coalesce(u.status, i.status),
        note = CASE WHEN u.status IS NULL THEN i.note ELSE u.note END
    FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[])
        u (id, handled_at, data, version, memory, status, note)
    WHERE i.id = u.id"""

# --- mailboxes ------------------------------------------------------------------------------------------

# live_runs_exposed: the run that is exposed, running or retrying, if there is one. It is not locked: `take`
# may start an exposed run meanwhile.
_OCCUPANT: Final = """
    LEFT JOIN LATERAL (
        SELECT l.run_id, l.state, l.due_at, l.fire_at, l.requires_version FROM live_runs l
        WHERE l.instance_id = k.id AND (l.state <> 'pending' OR l.due_at IS NOT NULL) OFFSET 0) o ON true"""
#: `_OCCUPANT`, and all entries of each instance of live_runs_mailbox; the primary keys of instances and
#: agent_classes. PostgreSQL reads no JSON with the escape \u0000, which texts of declared schedules may have
MAILBOXES: Final = f"""
    SELECT i.id::text, i.version,
        (SELECT count(*) FROM live_runs l
            WHERE l.instance_id = k.id AND l.state = 'pending' AND l.fire_at <= $3),
        coalesce($2, (
            SELECT (replace(c.definition, '\\u0000', '\\u0001')::json ->> 'mailbox')::integer
            FROM agent_classes c
            WHERE c.workspace = i.workspace AND c.agent = i.agent), {USUAL_MAILBOX}),
        o.run_id::text, o.state, o.fire_at
    FROM unnest($1::uuid[]) k (id) JOIN instances i ON i.id = k.id {_OCCUPANT}"""
#: `_OCCUPANT`, and the first entry of live_runs_mailbox; the primary key of instances
NEXT: Final = f"""
    SELECT i.status, i.version, o.run_id::text, o.state, o.due_at IS NOT NULL, o.requires_version,
        n.run_id::text
    FROM unnest($1::uuid[]) k (id) JOIN instances i ON i.id = k.id {_OCCUPANT}
    LEFT JOIN LATERAL (
        SELECT l.run_id FROM live_runs l WHERE l.instance_id = k.id AND l.state = 'pending'
        ORDER BY l.fire_at, l.sequence LIMIT 1) n ON true"""
#: the primary keys of runs and live_runs, once for each. Returns those that `take` has not started meanwhile
HIDE: Final = """
    WITH hidden AS (
        UPDATE runs SET due_at = NULL WHERE id = ANY($1::uuid[]) AND state IN ('pending', 'retrying')
        RETURNING id)
    UPDATE live_runs l SET due_at = NULL FROM hidden h WHERE l.run_id = h.id RETURNING l.run_id::text"""
#: the same. A pending run is due at its instant, a retrying one now
EXPOSE: Final = """
    WITH exposed AS (
        UPDATE runs r SET due_at = CASE r.state WHEN 'pending' THEN r.fire_at ELSE $3 END,
            requires_version = e.version
        FROM unnest($1::uuid[], $2::integer[]) e (id, version)
        WHERE r.id = e.id AND CASE WHEN e.id IS NOT NULL THEN r.state IN ('pending', 'retrying') END
        RETURNING r.id, r.due_at, r.requires_version)
    UPDATE live_runs l SET due_at = e.due_at, requires_version = e.requires_version
    FROM exposed e WHERE l.run_id = e.id"""

#: live_runs_of_job, once for each job; the primary keys of runs and live_runs for the rows found
LEAVE: Final = """
    WITH picked AS (
        SELECT r.id, t.serial FROM unnest($1::uuid[], $2::boolean[]) t (job_id, serial)
        CROSS JOIN LATERAL (
            SELECT l.run_id, l.state FROM live_runs l
            WHERE l.job_id = t.job_id AND l.instance_id IS NOT NULL
                AND l.state IN ('pending', 'retrying') OFFSET 0) l
        JOIN runs r ON r.id = l.run_id AND r.state = l.state ORDER BY r.id FOR UPDATE OF r),
    moved AS (
        UPDATE runs r SET instance_id = NULL, instance = NULL, signal = NULL, sequence = NULL,
            due_at = coalesce(r.due_at, greatest(r.fire_at, $3::timestamptz)), serial = p.serial,
            requires_version = 0
        FROM picked p WHERE r.id = p.id RETURNING r.id, r.due_at, r.serial)
    UPDATE live_runs l SET instance_id = NULL, sequence = NULL, fire_at = NULL, due_at = m.due_at,
        serial = m.serial, requires_version = 0
    FROM moved m WHERE l.run_id = m.id"""
#: the same. The pending runs of jobs that are not in their mailbox, in the order in which they join it
OUTSIDE: Final = """
    SELECT r.id::text, l.job_id::text FROM unnest($1::uuid[], $2::uuid[]) t (job_id, instance_id)
    CROSS JOIN LATERAL (
        SELECT l.run_id, l.job_id, l.state FROM live_runs l
        WHERE l.job_id = t.job_id AND l.state = 'pending'
            AND l.instance_id IS DISTINCT FROM t.instance_id OFFSET 0) l
    JOIN runs r ON r.id = l.run_id AND r.state = l.state ORDER BY r.scheduled_at, r.id FOR UPDATE OF r"""
#: the primary keys of runs and live_runs, once for each
JOIN: Final = """
    WITH moved AS (
        UPDATE runs r SET instance_id = t.instance_id, instance = t.instance, signal = t.signal,
            requires = t.requires, sequence = t.sequence, due_at = NULL, serial = false, is_pull = false,
            claim_timeout_ms = NULL, claim_deadline = NULL
        FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::bigint[])
            t (id, instance_id, instance, signal, requires, sequence)
        WHERE r.id = t.id RETURNING r.id, r.instance_id, r.sequence, r.fire_at, r.requires,
            r.workspace, r.agent)
    UPDATE live_runs l SET instance_id = m.instance_id, sequence = m.sequence, fire_at = m.fire_at,
        due_at = NULL, serial = false, is_pull = false, claim_deadline = NULL,
        workspace = m.workspace, agent = m.agent, requires = m.requires
    FROM moved m WHERE l.run_id = m.id"""
#: live_runs_of_job, once for each job; the primary key of runs for the rows found
SET_SIGNAL: Final = """
    UPDATE runs r SET signal = t.signal
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) t (job_id, instance_id, signal)
    CROSS JOIN LATERAL (
        SELECT l.run_id FROM live_runs l
        WHERE l.job_id = t.job_id AND l.instance_id = t.instance_id
            AND l.state IN ('pending', 'retrying') OFFSET 0) l
    WHERE r.id = l.run_id AND CASE WHEN l.run_id IS NOT NULL THEN r.state IN ('pending', 'retrying') END"""

#: the primary key of instances, the first entry of live_runs_mailbox, and live_runs_exposed, once for each
#: instance: start the run that follows the one that ended in that lane. It need not be exposed: the instance
#: is locked, so no other transaction can start it. Then the primary keys of runs,
#: live_runs, jobs and agent_classes
START_NEXT: Final = f"""
    WITH next AS (
        SELECT n.run_id, i.version FROM unnest($1::uuid[], $2::text[]) k (id, lane)
        JOIN instances i ON i.id = k.id AND i.status = 'active'
        CROSS JOIN LATERAL (
            SELECT l.run_id, l.lane, l.requires, l.fire_at FROM live_runs l
            WHERE l.instance_id = k.id AND l.state = 'pending' ORDER BY l.fire_at, l.sequence LIMIT 1) n
        JOIN unnest($3::text[], $4::integer[]) c (name, version)
            ON c.name = n.requires AND c.version >= i.version
        WHERE n.fire_at <= $5 AND n.lane = k.lane AND NOT EXISTS (
            SELECT FROM live_runs o WHERE o.instance_id = k.id
                AND (o.state <> 'pending' OR o.due_at IS NOT NULL) AND o.run_id <> n.run_id)),
    started AS (
        UPDATE runs r SET state = 'running', worker = $6, started_at = $5, due_at = NULL, beat_at = NULL,
            requires_version = n.version
        FROM next n WHERE r.id = n.run_id AND CASE WHEN n.run_id IS NOT NULL THEN r.state = 'pending' END
        RETURNING r.*, r.fire_at AS was_due_at),
    marked AS (
        UPDATE live_runs l SET state = 'running', worker = $6, due_at = NULL, requires_version = n.version
        FROM next n WHERE l.run_id = n.run_id)
    {taken_runs(signals=True)}"""

# --- signals --------------------------------------------------------------------------------------------

#: runs_tick and the primary keys, for each run; returns which were inserted
INSERT_SIGNALS: Final = f"""
    WITH inserted AS (
        INSERT INTO runs ({NEW_RUN_COLUMNS}, sequence, is_pull, created_at)
        SELECT {NEW_RUN_COLUMNS}, sequence, false, $2
        FROM unnest($1::run_record[], $3::text::bigint[]) n ({NEW_RUN_COLUMNS}, sequence)
        ON CONFLICT DO NOTHING
        RETURNING id, job_id, state, worker, lane, serial, trigger = 'schedule', scheduled_at, due_at,
            workspace, agent, is_pull, requires, requires_version, instance_id, sequence, fire_at),
    alive AS (
        INSERT INTO live_runs (run_id, job_id, state, worker, lane, serial, tick, scheduled_at, due_at,
            workspace, agent, is_pull, requires, requires_version, instance_id, sequence, fire_at)
        SELECT * FROM inserted WHERE state = 'pending')
    SELECT string_agg(id::text, ',') FROM inserted"""
#: live_runs_mailbox: all entries of each instance
WAITING: Final = """
    SELECT i.id::text,
        (SELECT count(*) FROM live_runs l
            WHERE l.instance_id = i.id AND l.state = 'pending' AND l.fire_at <= $2),
        CASE WHEN $3 THEN (SELECT count(*) FROM live_runs l
            WHERE l.instance_id = i.id AND l.state = 'pending' AND l.fire_at > $2) ELSE 0 END
    FROM unnest($1::uuid[]) i (id)"""
#: live_runs_mailbox: all entries of each instance
PENDING_OF: Final = """
    SELECT l.run_id::text FROM unnest($1::uuid[]) i (id) CROSS JOIN LATERAL (
        SELECT run_id FROM live_runs WHERE instance_id = i.id AND state = 'pending' OFFSET 0) l"""
#: the primary key, once for each
SET_EMITTED: Final = """
    UPDATE runs r SET emitted = e.emitted FROM unnest($1::uuid[], $2::text[]) e (id, emitted)
    WHERE r.id = e.id"""
#: the primary key of agent_classes, once for each
CLASSES: Final = f"""
    SELECT c.* FROM unnest($1::text[], $2::text[]) k (workspace, agent) CROSS JOIN LATERAL (
        SELECT {CLASS_COLUMNS} FROM agent_classes c
        WHERE c.workspace = k.workspace AND c.agent = k.agent FOR KEY SHARE) c"""
#: the primary key, once for each
KNOWN_SIGNALS: Final = """
    SELECT s.instance_id::text, s.source, s.id, s.run_id::text
    FROM unnest($1::uuid[], $2::text[], $3::text[]) k (instance_id, source, id)
    JOIN signal_ids s ON s.instance_id = k.instance_id AND s.source = k.source AND s.id = k.id
    WHERE s.expires_at > $4"""
#: the primary keys of signal_ids and live_runs, once for each
DELAYS: Final = f"""
    SELECT s.instance_id::text, s.id, l.run_id::text
    FROM unnest($1::uuid[], $2::text[]) k (instance_id, id)
    JOIN signal_ids s ON s.instance_id = k.instance_id AND s.source = '{DELAY_SOURCE}' AND s.id = k.id
    JOIN live_runs l ON l.run_id = s.run_id AND CASE WHEN s.run_id IS NOT NULL
        THEN l.state = 'pending' AND l.instance_id = s.instance_id END"""
#: the primary key of signal_ids, once for each. An id that has expired is replaced
ADD_SIGNAL_IDS: Final = """
    INSERT INTO signal_ids (instance_id, source, id, run_id, expires_at)
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::timestamptz[])
    ON CONFLICT (instance_id, source, id) DO UPDATE SET run_id = EXCLUDED.run_id,
        expires_at = EXCLUDED.expires_at"""
