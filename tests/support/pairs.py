"""Two operations of the services at once, compared with the two one after the other.

A case is a start, two operations, and an order of their store calls. The pair runs in one workspace, and one
after the other, in both orders, in two other workspaces: what the callers receive and what the database holds
must be the same as in one of the two orders. An operation is one line in `OPERATIONS` or in
`AGENT_OPERATIONS`: a function that draws arguments and returns what to call.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from tests.support.databases import Database
from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.engine.metrics import Metrics
from wakeful.errors import NotFound, WakefulError
from wakeful.launch.secrets import Keyring
from wakeful.run.instances import AgentClass, instance_id
from wakeful.service.auth.access import LOCAL
from wakeful.service.jobs.job_factory import SaveResult
from wakeful.service.services import Services
from wakeful.settings import Settings
from wakeful.signal.signals import Signal
from wakeful.store.instances import InstanceFilter
from wakeful.store.internal_jobs import is_reserved
from wakeful.store.port import Store
from wakeful.store.quotas import INSTANCES, LIVE_JOBS
from wakeful.store.rows import JobFilter, RunFilter
from wakeful.store.sessions import HEARTBEAT, SessionKey
from wakeful.store.sql.run_counts import DAY_MS

AGENT: Final = "default"
#: An agent that has a class, instances, sessions and a key.
TEAM: Final = "team"
NAMES: Final = ("a", "b", "c")

#: Calls a service in a workspace.
Call = Callable[[Services, str], Awaitable[object]]


class Arguments:
    """Draws the arguments of the two operations of a case: mostly they are about the same job."""

    def __init__(self, rng: random.Random, jobs: Sequence[str]) -> None:
        self.rng = rng
        self.job = rng.choice(jobs)

    def name(self) -> str:
        """Return the name of a job."""
        return self.job if self.rng.random() < 0.75 else self.rng.choice(NAMES)

    def agent(self) -> str:
        """Return the name of an agent, mostly the one with a class."""
        return TEAM if self.rng.random() < 0.75 else AGENT

    def instance(self) -> str:
        """Return the name of an instance of the team, mostly the one that exists."""
        return "eu" if self.rng.random() < 0.75 else "us"

    def other(self, name: str) -> str:
        """Return another name."""
        return self.rng.choice([each for each in NAMES if each != name])


#: Draws the arguments of an operation.
Draw = Callable[[Arguments], Call]


class Operation(NamedTuple):
    """A call with its arguments, and how a failure names it."""

    label: str
    call: Call


# --- operations -------------------------------------------------------------------------------------


def _document(name: str, after: str | None, description: str = "") -> dict[str, object]:
    when: dict[str, object] = {"schedule": "0 0 29 2 *"} if after is None else {"after": after}
    return {"name": name, "description": description, "target": {"kind": "pull"}, **when}


def _job(of: Arguments) -> dict[str, object]:
    name = of.name()
    return _document(name, of.rng.choice([None, of.other(name)]), of.rng.choice(["x", "y"]))


def _create(of: Arguments) -> Call:
    document = _job(of)
    return lambda s, w: s.jobs.create(LOCAL, w, AGENT, document)


def _create_many(of: Arguments) -> Call:
    first = of.name()
    second = of.other(first)
    documents = [_document(first, second), _document(second, of.rng.choice([None, first]))]
    return lambda s, w: s.jobs.create_many(LOCAL, w, AGENT, documents)


def _upsert(of: Arguments) -> Call:
    document = _job(of)
    return lambda s, w: s.jobs.upsert(LOCAL, w, AGENT, document)


def _describe(of: Arguments) -> Call:
    name, text = of.name(), of.rng.choice(["x", "y"])
    return lambda s, w: s.jobs.update(LOCAL, w, AGENT, name, {"description": text})


def _move(of: Arguments) -> Call:
    name, lane = of.name(), of.rng.choice(["night", "day"])
    return lambda s, w: s.jobs.update(LOCAL, w, AGENT, name, {"lane": lane})


def _follow(of: Arguments) -> Call:
    name = of.name()
    patch = {"after": of.other(name), "schedule": None}
    return lambda s, w: s.jobs.update(LOCAL, w, AGENT, name, patch)


def _rename(of: Arguments) -> Call:
    name = of.name()
    new = of.rng.choice([of.other(name), "d"])
    return lambda s, w: s.jobs.update(LOCAL, w, AGENT, name, {"name": new})


def _delete(of: Arguments) -> Call:
    name = of.name()
    return lambda s, w: s.jobs.delete(LOCAL, w, AGENT, name)


def _restore(of: Arguments) -> Call:
    name = of.name()
    return lambda s, w: s.jobs.revisions.restore(LOCAL, w, AGENT, name, 1)


def _run(of: Arguments) -> Call:
    name, overlap = of.name(), of.rng.choice([None, None, "queue"])
    return lambda s, w: s.jobs.trigger(LOCAL, w, AGENT, name, overlap=overlap)


def _run_at_version(of: Arguments) -> Call:
    name = of.name()
    return lambda s, w: s.jobs.trigger(LOCAL, w, AGENT, name, version=1)


def _backfill(of: Arguments) -> Call:
    name = of.name()
    return lambda s, w: s.jobs.backfill(LOCAL, w, AGENT, name, "2020-01-01T00:00Z", "2020-12-31T00:00Z")


def _hook(of: Arguments) -> Call:
    name, version = of.name(), of.rng.choice([None, 1])
    return lambda s, w: s.jobs.hooks.create(LOCAL, w, AGENT, name, version=version)


def _pause(of: Arguments) -> Call:
    name = of.name()
    return lambda s, w: s.jobs.pause(LOCAL, w, AGENT, name)


def _resume(of: Arguments) -> Call:
    name = of.name()
    return lambda s, w: s.jobs.resume(LOCAL, w, AGENT, name)


def _apply(of: Arguments) -> Call:
    first = of.name()
    second = of.other(first)
    after = of.rng.choice([(None, first), (second, None), (None, None)])
    documents = [_document(name, each, "applied") for name, each in zip((first, second), after, strict=True)]

    async def apply(services: Services, workspace: str) -> None:
        for document in documents:  # as `wakeful apply` does: each job in a transaction of its own
            await services.jobs.upsert(LOCAL, workspace, AGENT, document)

    return apply


def _put_agent(of: Arguments) -> Call:
    name, beats = of.agent(), of.rng.choice([None, {"every": "30m"}, {"every": "1h"}])
    document: dict[str, object] = {"target": {"kind": "pull"}, "active": of.rng.random() < 0.7}
    if beats is not None:
        document["heartbeat"] = beats
    return lambda s, w: s.agents.put(LOCAL, w, name, document)


def _patch_agent(of: Arguments) -> Call:
    name, active = of.agent(), of.rng.random() < 0.5
    return lambda s, w: s.agents.update(LOCAL, w, name, {"active": active})


def _delete_agent(of: Arguments) -> Call:
    name = of.agent()
    return lambda s, w: s.agents.delete(LOCAL, w, name)


def _register(of: Arguments) -> Call:
    version = of.rng.choice([1, 2])
    return lambda s, w: s.store.put_class(_class(w, version), s.now_ms())


def _create_key(of: Arguments) -> Call:
    document = {"role": "agent", "agent": of.agent(), "name": "new"}
    return lambda s, w: s.auth.keys.create(LOCAL, w, document)


def _revoke_key(of: Arguments) -> Call:
    async def revoke(services: Services, workspace: str) -> None:
        (first,) = [key.id for key in await services.store.keys(workspace) if key.name == "start"]
        await services.auth.keys.revoke(LOCAL, workspace, first)

    return revoke


def _start_instance(of: Arguments) -> Call:
    name = of.instance()
    return lambda s, w: s.agents.instances.start(LOCAL, w, TEAM, name)


def _stop_instance(of: Arguments) -> Call:
    name = of.instance()
    return lambda s, w: s.agents.instances.stop(LOCAL, w, TEAM, name)


def _pause_instance(of: Arguments) -> Call:
    name = of.instance()
    return lambda s, w: s.agents.instances.pause(LOCAL, w, TEAM, name)


def _signal(of: Arguments) -> Call:
    name, key = of.instance(), of.rng.choice([None, "one"])
    signal = Signal("greet", id=key)
    return lambda s, w: s.agents.signals.send(LOCAL, w, TEAM, name, [signal])


def _message(of: Arguments) -> Call:
    document = {"message": of.rng.choice(["hello", "hello", "/stop"]), "session": of.instance()}
    return lambda s, w: s.agents.messages.send(LOCAL, w, TEAM, document)


def _wake(of: Arguments) -> Call:
    name = of.agent()
    return lambda s, w: s.agents.wakes.wake(LOCAL, w, name)


def _delete_session(of: Arguments) -> Call:
    name = of.instance()
    return lambda s, w: s.agents.sessions.delete(LOCAL, w, TEAM, name)


def _create_job_of_team(of: Arguments) -> Call:
    document = _document("t", None, of.rng.choice(["x", "y"]))
    return lambda s, w: s.jobs.upsert(LOCAL, w, TEAM, document)


def _delete_job_of_team(of: Arguments) -> Call:
    return lambda s, w: s.jobs.delete(LOCAL, w, TEAM, "t")


#: What a pair is drawn from.
OPERATIONS: Final[Mapping[str, Draw]] = {
    "create": _create,
    "create many": _create_many,
    "upsert": _upsert,
    "describe": _describe,
    "move": _move,
    "follow": _follow,
    "rename": _rename,
    "delete": _delete,
    "restore": _restore,
    "run": _run,
    "run at version 1": _run_at_version,
    "backfill": _backfill,
    "hook": _hook,
    "pause": _pause,
    "resume": _resume,
    "apply": _apply,
}

#: What else a pair is drawn from: operations about agents, and about what an agent has.
AGENT_OPERATIONS: Final[Mapping[str, Draw]] = {
    "put agent": _put_agent,
    "patch agent": _patch_agent,
    "delete agent": _delete_agent,
    "register class": _register,
    "create key": _create_key,
    "revoke key": _revoke_key,
    "start instance": _start_instance,
    "stop instance": _stop_instance,
    "pause instance": _pause_instance,
    "signal": _signal,
    "message": _message,
    "wake": _wake,
    "delete session": _delete_session,
    "create job of team": _create_job_of_team,
    "delete job of team": _delete_job_of_team,
    "create": _create,
    "delete": _delete,
    "upsert": _upsert,
    "run": _run,
}
#: Operations of several transactions: another caller may come in between.
_SEVERAL: Final = frozenset({"apply"})

#: What the jobs are before a pair: each name with what it comes after.
STARTS: Final[Sequence[Mapping[str, str | None]]] = (
    {"a": None},
    {"a": None, "b": "a"},
    {"a": "b"},
    {"a": "b", "c": "a"},
    {"a": None, "b": "a", "c": "b"},
)

#: What the team has before a pair.
TEAM_STARTS: Final[Sequence[tuple[str, ...]]] = (
    (),
    ("instance",),
    ("instance", "stopped"),
    ("session",),
    ("job",),
    ("instance", "stopped", "session"),
)


def _class(workspace: str, version: int = 1) -> AgentClass:
    return AgentClass(workspace, TEAM, version, "{}", 100, 86_400_000, "team")


# --- cases ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A start, two operations, and the seed of the order of their store calls."""

    seed: int
    start: Mapping[str, str | None]
    #: what the team has; None: there is no team
    team: Sequence[str] | None
    first: Operation
    second: Operation

    def __str__(self) -> str:
        start = dict(self.start), self.team
        return f"seed {self.seed}: {start}, {self.first.label} beside {self.second.label}"

    @property
    def is_serial(self) -> bool:
        """Whether the result must be that of one order."""
        return _SEVERAL.isdisjoint((self.first.label, self.second.label))


def cases(number: int, operations: Mapping[str, Draw] = OPERATIONS) -> Iterator[Case]:
    """Yield so many cases. Every pair of operations comes up in turn, with other arguments each time."""
    names = list(operations)
    pairs = [(one, two) for number, one in enumerate(names) for two in names[number:]]
    random.Random(0).shuffle(pairs)
    for seed in range(number):
        rng = random.Random(seed)
        start = rng.choice(STARTS)
        team = None if operations.keys() <= OPERATIONS.keys() else rng.choice(TEAM_STARTS)
        drawn = Arguments(rng, list(start))
        one, two = (Operation(name, operations[name](drawn)) for name in pairs[seed % len(pairs)])
        yield Case(seed, {} if team is not None and seed % 3 else start, team, one, two)


class Result(NamedTuple):
    """What the two callers received, and what the database holds afterwards."""

    answers: tuple[object, object]
    state: object


class Pairs:
    """Runs cases on a database: each operation has the services of a process of its own, or of one."""

    def __init__(self, stores: Sequence[Store], *, stepped: bool, shared: bool = False) -> None:
        self._turns = Turns() if stepped else None
        self._stores = stores
        self._services = [
            new_services(store if self._turns is None else self._turns.of(store)) for store in stores
        ]
        if shared:
            self._services = [self._services[0]] * 2
        self._made = 0

    @classmethod
    async def on(cls, database: Database, *, stepped: bool, shared: bool = False) -> Pairs:
        """Return the pairs on a database. `stepped`: one store call at a time, in an order that is drawn.

        `shared`: both operations are in one process, so that they may be written together.
        """
        stores = [await database.connect(), await database.connect()]
        await stores[0].count_runs(stores[0].clock.now_ms(), 1)  # with runs, it would wait for a scan
        return cls(stores, stepped=stepped, shared=shared)

    async def check(self, case: Case) -> Result:
        """Run a case; AssertionError if the result is not that of one order, or breaks an invariant."""
        workspaces = [f"w{self._made + number}" for number in range(3)]
        self._made += 3
        one, two = case.first, case.second
        for workspace in workspaces:
            await self._start(workspace, case)
        together = await self._together(workspaces[0], case)
        orders = [
            Result(
                (await self._answer(0, one, workspaces[1]), await self._answer(1, two, workspaces[1])),
                await self._state(workspaces[1]),
            )
        ]
        later = await self._answer(1, two, workspaces[2])
        orders.append(
            Result(
                (await self._answer(0, one, workspaces[2]), later),
                await self._state(workspaces[2]),
            )
        )
        await self._check_references(workspaces[0], case)
        await self._check_agents(workspaces[0], case)
        await self._check_counts(workspaces[0], case)
        if case.is_serial:
            assert together in orders, f"{case}\ntogether: {together}\none after the other: {orders}"
        return together

    async def _start(self, workspace: str, case: Case) -> None:
        services, jobs = self._services[0], case.start
        await services.agents.workspaces.put(LOCAL, workspace, {})
        if case.team is not None:
            await self._start_team(workspace, case.team)
        documents = [_document(name, after, "start") for name, after in jobs.items()]
        if documents:
            await services.jobs.create_many(LOCAL, workspace, AGENT, documents)
        for name in list(jobs)[:1]:  # a second revision
            await services.jobs.update(LOCAL, workspace, AGENT, name, {"description": "started"})

    async def _start_team(self, workspace: str, team: Sequence[str]) -> None:
        services = self._services[0]
        await services.store.put_class(_class(workspace), services.now_ms())
        await services.agents.put(LOCAL, workspace, TEAM, {"target": {"kind": "pull"}})
        await services.auth.keys.create(LOCAL, workspace, {"role": "agent", "agent": TEAM, "name": "start"})
        if "instance" in team:
            await services.agents.instances.start(LOCAL, workspace, TEAM, "eu")
        if "stopped" in team:
            await services.agents.instances.stop(LOCAL, workspace, TEAM, "eu")
        if "session" in team:
            await services.agents.messages.send(LOCAL, workspace, TEAM, {"message": "hi", "session": "eu"})
        if "job" in team:
            await services.jobs.create(LOCAL, workspace, TEAM, _document("t", None, "start"))

    async def _together(self, workspace: str, case: Case) -> Result:
        calls = [self._answer(0, case.first, workspace), self._answer(1, case.second, workspace)]
        if self._turns is None:
            first, second = await asyncio.gather(*calls)
        else:
            first, second = await self._turns.run(calls, random.Random(case.seed))
        return Result((first, second), await self._state(workspace))

    async def _answer(self, number: int, operation: Operation, workspace: str) -> object:
        """Return what a caller receives: the code of an error, or what is known of a success."""
        try:
            result = await operation.call(self._services[number], workspace)
        except NotFound as error:
            return "404 of an upsert" if operation.label == "upsert" else error.code
        except WakefulError as error:
            return error.code
        return (result.created, result.changed) if isinstance(result, SaveResult) else "done"

    async def _state(self, workspace: str) -> object:
        """Return what the database holds of a workspace, without ids and times."""
        store, services = self._stores[0], self._services[0]
        jobs = await store.jobs(JobFilter(workspace))
        runs = await store.runs(RunFilter(workspace, limit=1_000))
        kept = {
            (row.agent, row.name): (
                row.after_job,
                row.description,
                row.enabled,
                row.version,
                len(await store.revisions(row.id)),
                await services.jobs.hooks.exists(row.id),
            )
            for row in jobs
        }
        agents = [(row.name, row.active, row.target, row.heartbeat) for row in await store.agents(workspace)]
        keys = [
            (row.role, row.agent, row.name, row.revoked_ms is None) for row in await store.keys(workspace)
        ]
        found = await store.agent_class(workspace, TEAM)
        return (
            kept,
            sorted((str(run.job_name), run.trigger, run.state, run.reason or "", run.lane) for run in runs),
            sorted(agents, key=repr),
            sorted(keys, key=repr),
            None if found is None else found.version,
            [
                (view.row.name, view.row.status, view.waiting)
                for view in await store.instances(InstanceFilter(workspace))
            ],
            [
                (view.name, view.messages, len(view.turns))
                for view in await store.sessions(workspace, TEAM, None, 100)
            ],
        )

    async def _check_agents(self, workspace: str, case: Case) -> None:
        """Check that nothing is left of an agent that does not exist, and that internal jobs match."""
        store = self._stores[0]
        agents = {row.name: row for row in await store.agents(workspace)}
        jobs = await store.jobs(JobFilter(workspace))
        assert {row.agent for row in jobs} <= set(agents), f"{case}: jobs without their agent"
        instances = await store.instances(InstanceFilter(workspace))
        assert {view.row.agent for view in instances} <= set(agents), f"{case}: instances without their agent"
        if TEAM not in agents:
            assert await store.agent_class(workspace, TEAM) is None, f"{case}: a class without its agent"
            assert not await store.sessions(workspace, TEAM, None, 100), (
                f"{case}: sessions without their agent"
            )
            for name in ("eu", "us"):
                key = SessionKey(workspace, TEAM, name)
                assert not await store.waiting_messages(key, 100), f"{case}: messages without their agent"
                signals = await store.mailbox(instance_id(workspace, TEAM, name), 100)
                assert not signals, f"{case}: signals without their agent"
        beating = {name for name, row in agents.items() if row.heartbeat is not None}
        beats = {row.agent: row.enabled for row in jobs if row.name == HEARTBEAT}
        assert set(beats) == beating, f"{case}: heartbeats of {set(beats)}, and agents with one {beating}"
        for name, enabled in beats.items():
            assert enabled == agents[name].active, f"{case}: the heartbeat of {name} is enabled: {enabled}"

    async def _check_counts(self, workspace: str, case: Case) -> None:
        """Check that counts are the number of rows: jobs, instances, live and finished runs."""
        store = self._stores[0]
        now_ms = store.clock.now_ms()
        jobs = await store.jobs(JobFilter(workspace))
        runs = await store.runs(RunFilter(workspace, limit=1_000))
        used = {(row.agent, row.bucket): row.used for row in await store.quotas(workspace, now_ms)}
        live = Counter(row.agent for row in jobs if not is_reserved(row.name))
        active = [
            view for view in await store.instances(InstanceFilter(workspace)) if view.row.status != "stopped"
        ]
        for bucket, of_agent in ((LIVE_JOBS, live), (INSTANCES, Counter(view.row.agent for view in active))):
            for agent, number in (of_agent + Counter({"": of_agent.total()})).items():
                assert used.get((agent, bucket), 0) == number, f"{case}: {bucket} of '{agent}'"
            assert {agent for agent, kind in used if kind == bucket} <= {*of_agent, ""}, f"{case}: {bucket}"
        stats = await store.workspace_stats(workspace)
        assert stats.active_jobs + stats.paused_jobs == len(jobs), f"{case}: {stats}, and {len(jobs)} jobs"
        states = Counter(run.state for run in runs)
        unfinished = {state: states[state] for state in ("pending", "running", "retrying") if states[state]}
        assert stats.live == unfinished, f"{case}: {stats.live}, and runs {unfinished}"
        for view in active:
            waiting = await store.mailbox(view.row.id, 100)
            assert view.waiting == len(waiting), f"{case}: {view.waiting} signals wait, and {waiting}"
        while (await store.count_runs(now_ms, 1_000)).more:
            pass
        counted: Counter[str] = Counter()
        for each in await store.run_counts(workspace, None, 0, now_ms + DAY_MS):
            counted[each.state] += each.runs
        ended = Counter({state: number for state, number in states.items() if state not in unfinished})
        assert counted == ended, f"{case}: finished runs are counted as {counted}, and there are {ended}"

    async def _check_references(self, workspace: str, case: Case) -> None:
        """Check that no job comes after itself, and that a reference to no job is reported."""
        store = self._stores[0]
        after = {row.name: row.after_job for row in await store.jobs(JobFilter(workspace))}
        for name in after:
            path = [name]
            while (before := after.get(path[-1])) is not None:
                assert before not in path, f"{case}: the jobs {path} come after each other"
                path.append(before)
        reported = {name for _, _, name, _ in await store.dangling_jobs(workspace, 1_000)}
        alone = {name for name, before in after.items() if before is not None and before not in after}
        assert reported == alone, f"{case}: {alone} come after jobs that do not exist"
        known = {row.name for row in await store.agents(workspace)}
        for key in await store.keys(workspace):
            assert key.agent is None or key.revoked_ms is not None or key.agent in known, f"{case}: {key}"


def new_services(store: Store) -> Services:
    """Return the services of a process of its own, without launchers."""
    settings = Settings()
    return Services(store, LauncherRegistry([]), Keyring([]), Defaults(), settings, Metrics(), None)


# --- turns ------------------------------------------------------------------------------------------

#: How the names of methods begin that write.
_WRITES: Final = ("add", "change", "create", "delete", "put", "replace", "revoke", "send", "take", "update")
#: The task that a store call belongs to, also if another task makes it (a batcher).
_CALLER: ContextVar[int | None] = ContextVar("caller", default=None)


class Turns:
    """Lets one store call happen at a time, of the task whose turn it is."""

    def __init__(self) -> None:
        #: the store calls that wait, by task: the names of the methods, and their turns. A task has several
        #: if it has started others, such as one that fills a cache
        self._waiting: dict[int, list[tuple[str, asyncio.Future[None]]]] = {}
        self._arrived = asyncio.Event()

    def of(self, store: Store) -> Store:
        """Return a store whose calls wait for their turn."""
        return cast(Store, _StoreWithTurns(store, self))

    async def run(self, calls: Sequence[Awaitable[object]], rng: random.Random) -> list[object]:
        """Run two calls, and draw whose store call comes next each time that all wait or have ended.

        In most cases one of them runs until it writes for the first time, then the other one runs to its end:
        so everything that the first one has read may be outdated when it writes.
        """
        tasks = []
        held_up = rng.choice([0, 1, None])
        for number, call in enumerate(calls):
            token = _CALLER.set(number)
            tasks.append(asyncio.ensure_future(call))
            _CALLER.reset(token)
        while live := [number for number, task in enumerate(tasks) if not task.done()]:
            if not set(live) <= set(self._waiting):
                self._arrived.clear()
                waiter = asyncio.ensure_future(self._arrived.wait())
                unfinished = [tasks[number] for number in live if number not in self._waiting]
                await asyncio.wait([waiter, *unfinished], return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                continue
            chosen = rng.choice(live)
            if held_up is not None and len(live) > 1:
                chosen = 1 - held_up if self._waiting[held_up][0][0].startswith(_WRITES) else held_up
            _, turn = self._waiting[chosen].pop(0)
            if not self._waiting[chosen]:
                del self._waiting[chosen]
            if not turn.done():  # cancelled meanwhile
                turn.set_result(None)
        return [task.result() for task in tasks]

    async def wait(self, method: str) -> None:
        """Wait until the current task may call this method."""
        caller = _CALLER.get()
        if caller is not None:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(caller, []).append((method, turn))
            self._arrived.set()
            await turn


class _StoreWithTurns:
    """A store whose calls wait for their turn."""

    def __init__(self, store: Store, turns: Turns) -> None:
        self._store = store
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._turns.wait(name)
            return await found(*args, **kwargs)

        return call
