"""A replica that handles signals, and kills itself at one stage of a handler.

`python killed_replica.py URL AGENT STAGE JOURNAL`. It has one agent class, so that each replica of a test
dies at a stage of its own. A stage is one of `STAGES`; or `exit`: the handler of the fatal signal ends the
process; or `none`. It writes its calls of handlers to the file JOURNAL.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

from wakeful import (
    Agent,
    CancelCron,
    Delay,
    Emit,
    EngineConfig,
    SetCron,
    SetState,
    Signal,
    Wakeful,
    on,
)
from wakeful.agents.context import Context
from wakeful.agents.directives import Directive
from wakeful.agents.launcher import AgentLauncher
from wakeful.launch.port import Launch
from wakeful.run.outcome import Outcome
from wakeful.store.changelog import TransactionEvents

#: Where a process is killed: before the handler starts; in the handler; after it returned and before the
#: outcome is written; in the transaction, after the run is written and before the directives are; after all
#: is written and before the commit; after the commit and before the next handler starts.
STAGES = ("taken", "handler", "returned", "halfway", "written", "committed")
#: The signal whose attempt is killed: the first that starts. A busy machine may lose an earlier claim.
FATAL = 2
SINK = "sink"
RELAY = "relay"
#: How many instances relay signals, and the length of the longest path of a signal.
RELAYS = 6
LONGEST = 4

#: What handlers do before they return.
InHandler = Callable[[Signal, Context], Awaitable[None]]

PACE = EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=2_500)


def die() -> NoReturn:
    """Kill this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


class Journal:
    """Calls of handlers, one line for each, written with one system call."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def write(self, what: str, run_id: str) -> None:
        """Add a line with the time, which is the same clock in all processes."""
        os.write(self._file, f"{time.monotonic_ns()} {what} {run_id}\n".encode())


async def nothing(signal: Signal, ctx: Context) -> None:
    """Do nothing."""


def counter(agent: str, in_handler: InHandler = nothing) -> type[Agent]:
    """Return a class that counts its signals and returns every kind of directive."""

    class Counter(Agent):
        name = agent
        state = {"count": 0, "log": [], "later": []}
        backoff = {"base": "20ms", "max": "50ms"}
        max_attempts = 3

        @on("work")
        async def work(self, signal: Signal, ctx: Context) -> list[Directive]:
            await in_handler(signal, ctx)
            assert isinstance(signal.data, dict)
            number, state = int(str(signal.data["number"])), ctx.state
            return [
                SetState(count=state["count"] + 1, log=[*state["log"], number]),
                Emit(Signal("done", {"number": number})),
                Emit(Signal("told", {"number": number}), to=(SINK, agent)),
                Delay(50, Signal("later", {"number": number})),
                SetCron("0 0 1 1 *", Signal("work", {"number": 0}), f"job-{number}"),
                CancelCron(f"job-{number - 1}"),
            ]

        @on("count")
        async def only_count(self, signal: Signal, ctx: Context) -> Directive:
            await in_handler(signal, ctx)
            assert isinstance(signal.data, dict)
            state = ctx.state
            return SetState(count=state["count"] + 1, log=[*state["log"], signal.data["number"]])

        @on("later")
        async def later(self, signal: Signal, ctx: Context) -> Directive:
            assert isinstance(signal.data, dict)
            return SetState(later=[*ctx.state["later"], signal.data["number"]])

    return Counter


class Relay(Agent):
    """Sends each signal on to three instances, until it has travelled far enough."""

    name = RELAY
    state = {"log": []}
    backoff = {"base": "20ms", "max": "50ms"}

    @on("relay")
    async def relay(self, signal: Signal, ctx: Context) -> list[Directive]:
        """Record the path of the signal, and send it on."""
        assert isinstance(signal.data, dict)
        path = str(signal.data["path"])
        paths = [f"{path}{number}" for number in range(3)] if len(path) < LONGEST else []
        return [
            SetState(log=[*ctx.state["log"], path]),
            *(Emit(Signal("relay", {"path": each}), to=(RELAY, place(each))) for each in paths),
        ]


def place(path: str) -> str:
    """Return the instance that receives the signal of this path."""
    return f"r{crc32(path.encode()) % RELAYS}"


class Sink(Agent):
    """Receives what the others emit."""

    name = SINK
    state = {"told": []}

    @on("told")
    async def told(self, signal: Signal, ctx: Context) -> Directive:
        """Record the signal."""
        assert isinstance(signal.data, dict)
        return SetState(told=[*ctx.state["told"], signal.data["number"]])


class Death:
    """Kills the process at one stage of the first attempt of the fatal signal that it starts."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._run: str | None = None

    def arrange(self, app: Wakeful) -> None:
        """Prepare the death at that stage."""
        start = AgentLauncher.start

        async def start_or_die(launcher: AgentLauncher, run: Launch) -> Outcome:
            if run.signal == "work" and f'"number":{FATAL}' in str(run.payload_text):
                self._run = run.id
                self._reach("taken")
            return await start(launcher, run)

        AgentLauncher.start = start_or_die  # type: ignore[method-assign, assignment]
        for name in ("finish", "finish_and_take"):
            setattr(app.store, name, self._around(getattr(app.store, name)))
        log = TransactionEvents.log

        def log_or_die(events: TransactionEvents) -> Any:
            if self._run in events._changes.get("run.finished", {}):
                self._reach("written")
            return log(events)

        TransactionEvents.log = log_or_die  # type: ignore[method-assign, assignment]
        for module in _outcome_modules():
            effects = module.signal_effects

            def effects_or_die(outcomes: Any, *rest: Any, effects: Any = effects) -> Any:
                outcomes = list(outcomes)
                if self._run in {each.run_id for each in outcomes}:
                    self._reach("halfway")
                return effects(outcomes, *rest)

            module.signal_effects = effects_or_die

    def _around(self, finish: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def finish_or_die(worker: str, finished: Any, *rest: Any) -> Any:
            fatal = self._run in {each.run_id for each in finished}
            if fatal:
                self._reach("returned")
            answer = await finish(worker, finished, *rest)
            if fatal:
                self._reach("committed")
            return answer

        return finish_or_die

    def in_handler(self, signal: Signal, ctx: Context) -> None:
        """Die in the handler, if that is the stage."""
        if ctx.run_id == self._run:
            self._reach("handler")

    def _reach(self, stage: str) -> None:
        if stage == self._stage:
            die()


def _outcome_modules() -> list[Any]:
    from wakeful.store.postgres import signal_outcomes as of_postgres
    from wakeful.store.sqlite import signal_outcomes as of_sqlite

    return [of_sqlite, of_postgres]


async def main(url: str, agent: str, stage: str, file: Path) -> None:
    """Handle signals until the process is killed."""
    app = Wakeful(url, config=PACE)
    death, journal = Death(stage), Journal(file)

    async def in_handler(signal: Signal, ctx: Context) -> None:
        if stage == "exit" and signal.id == str(FATAL):
            os._exit(3)
        journal.write("begin", ctx.run_id)
        death.in_handler(signal, ctx)
        await asyncio.sleep(0.001)
        journal.write("end", ctx.run_id)

    if agent == RELAY:
        app.agent(Relay)
    else:
        app.agent(counter(agent, in_handler))
        death.arrange(app)
    async with app:
        await app.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
