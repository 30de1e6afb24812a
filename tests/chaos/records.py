"""Records of the database: runs, every state change of every run, and every heartbeat.

Triggers record steps and heartbeats in the transaction that makes the change, so none is missed. Steps of one
run are in order (its row is locked); a step that the transaction of another step has seen comes before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import asyncpg

_WATCH = """
CREATE TABLE public.steps (
    seq bigserial PRIMARY KEY, xid xid8 DEFAULT pg_current_xact_id(),
    at timestamptz DEFAULT clock_timestamp(),
    run_id uuid, was text, state text, attempt integer, worker text, due_at timestamptz,
    unstarted boolean NOT NULL DEFAULT false
);
CREATE TABLE public.beats (
    worker text, beat_at timestamptz, at timestamptz DEFAULT clock_timestamp()
);
CREATE FUNCTION public.step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO public.steps (run_id, was, attempt) VALUES (OLD.id, OLD.state, OLD.attempt);
    ELSE
        INSERT INTO public.steps (run_id, was, state, attempt, worker, due_at, unstarted)
        VALUES (NEW.id, CASE TG_OP WHEN 'UPDATE' THEN OLD.state END, NEW.state, NEW.attempt, NEW.worker,
            NEW.due_at, TG_OP = 'UPDATE' AND OLD.state = 'running' AND OLD.started_at IS NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION public.beat() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.beats (worker, beat_at) VALUES (NEW.name, NEW.beat_at);
    RETURN NULL;
END $$;
CREATE TRIGGER step AFTER INSERT OR UPDATE OF state, attempt, worker OR DELETE ON wakeful.runs
    FOR EACH ROW EXECUTE FUNCTION public.step();
CREATE TRIGGER beat AFTER INSERT OR UPDATE ON wakeful.workers
    FOR EACH ROW EXECUTE FUNCTION public.beat();
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A row of `runs`."""

    id: str
    job_id: str | None
    scheduled_ms: int
    fire_ms: int
    trigger: str
    state: str
    reason: str | None
    covers: int
    until_ms: int | None
    attempt: int
    worker: str | None
    serial: bool
    finished_ms: int | None
    created_ms: int
    key: str
    error: str | None
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A change of a run: `was` is None for an insert, `state` for a deletion. `at_us` precedes the commit."""

    seq: int
    xid: int
    at_us: int
    run_id: str
    was: str | None
    state: str | None
    attempt: int
    worker: str | None
    due_ms: int | None
    #: whether the run was running without a recorded start: it was prefetched
    unstarted: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that did not end its run."""

    run_id: str
    attempt: int
    worker: str | None
    finished_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: the time of the worker, and when it was written."""

    worker: str
    beat_ms: int
    at_us: int


@dataclass
class Records:
    """The contents of the database."""

    runs: list[Run] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    #: the number of rows of `live_runs`
    live: int = 0


async def watch(url: str) -> None:
    """Record every step and heartbeat from now on."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_WATCH)
    finally:
        await connection.close()


async def ask(url: str, query: str, *given: Any) -> Any:
    """Return one value, over a separate connection."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query, *given)
    finally:
        await connection.close()


async def read_records(url: str) -> Records:
    """Return all records."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET search_path = wakeful, public")
        return Records(
            [Run(*row) for row in await connection.fetch(_RUNS)],
            [Step(*row) for row in await connection.fetch(_STEPS)],
            [Attempt(*row) for row in await connection.fetch(_ATTEMPTS)],
            [Beat(*row) for row in await connection.fetch(_BEATS)],
            await connection.fetchval("SELECT count(*) FROM live_runs"),
        )
    finally:
        await connection.close()


def _us(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def _ms(column: str) -> str:
    return f"floor(extract(epoch FROM {column}) * 1000)::bigint"


_RUNS = f"""
    SELECT id::text, job_id::text, {_ms("scheduled_at")}, {_ms("fire_at")}, trigger, state, reason, covers,
        {_ms("until_at")}, attempt, worker, serial, {_ms("finished_at")}, {_ms("created_at")},
        idempotency_key, error, losses
    FROM runs ORDER BY scheduled_at, id"""
_STEPS = f"""
    SELECT seq, xid::text::bigint, {_us("at")}, run_id::text, was, state, attempt, worker, {_ms("due_at")},
        unstarted
    FROM steps ORDER BY seq"""
_ATTEMPTS = f"""
    SELECT run_id::text, attempt, worker, {_ms("finished_at")}, error
    FROM attempts ORDER BY run_id, attempt"""
_BEATS = f"SELECT worker, {_ms('beat_at')}, {_us('at')} FROM beats ORDER BY at"
