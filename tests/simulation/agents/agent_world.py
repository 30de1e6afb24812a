"""A simulated world with agents: each replica has the classes `alpha` and `beta`.

`AgentLauncher`, the mailboxes and the directives are real. Handlers do what `World.behaviour` says and return
the directives of its plan. The state of an instance counts the signals that it handled and lists their runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.simulation.agents import checker
from tests.simulation.agents.journal import Handling, Plan, Sent, SignalJournal
from tests.simulation.agents.records import SignalRecords, read_signals, watch_instances
from tests.simulation.faults import Crash
from tests.simulation.journal import Launched
from tests.simulation.world import Replica, World
from wakeful import SELF, Agent, CancelCron, Delay, Emit, Permanent, SetCron, SetState, Signal, Stop, on
from wakeful.agents.class_registry import ClassRegistry
from wakeful.agents.context import Context, InstanceContext
from wakeful.agents.directives import Directive
from wakeful.agents.launcher import AgentLauncher
from wakeful.agents.schedule_sync import read_declared
from wakeful.document import Defaults
from wakeful.engine.launcher_registry import LauncherRegistry
from wakeful.errors import Unavailable
from wakeful.launch.function import FunctionLauncher
from wakeful.run.consequences import Consequences
from wakeful.run.instances import AgentClass, instance_id
from wakeful.run.outcome import Finished
from wakeful.run.signal_rules import signal_run
from wakeful.service.agents import instance_rules
from wakeful.store.instances import InstanceRule
from wakeful.store.plans import TakeNext
from wakeful.store.rows import TakenRun

AGENTS = ("alpha", "beta")

#: What a handler does: it returns its plan, or raises.
Behaviour = Callable[[Handling], Awaitable[Plan]]


async def only_counts(handling: Handling) -> Plan:
    """Only count: the default behaviour."""
    return Plan()


class AgentWorld(World):
    """A world in which replicas handle signals."""

    def __init__(
        self,
        folder: Path,
        seed: object = 0,
        *,
        behaviour: Behaviour = only_counts,
        unit_ms: int = 1000,
        mailbox: int = 1000,
        **settings: Any,
    ) -> None:
        self.behaviour = behaviour
        self.signals = SignalJournal()
        self.unit_ms = unit_ms
        self._mailbox = mailbox
        #: the agents whose classes the next replica has
        self.agents: Sequence[str] = AGENTS
        self.launchers: dict[Replica, AgentLauncher] = {}
        #: signals that are on their way to the database
        self.sending: dict[asyncio.Task[Any], None] = {}
        super().__init__(folder, seed, **settings)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        watch_instances(self.recorder)
        self.classes: dict[str, AgentClass] = {}
        for name in AGENTS:
            registered = ClassRegistry().register(self._class(name, None))
            self.classes[name] = registered.agent_class
            await self._client.put_class(registered.agent_class, self.clock.now_ms())
        return self

    def new_targets(self, replica: Replica | None) -> LauncherRegistry:
        """Return the targets of a process: the classes of `agents`."""
        if replica is None:
            return super().new_targets(None)
        classes = ClassRegistry()
        for name in self.agents:
            classes.register(self._class(name, replica))
        launcher = self.launchers[replica] = AgentLauncher(classes, replica.store.clock)
        store = replica._inner
        finish, finish_and_take = store.finish, store.finish_and_take

        async def recorded(worker: str, finished: Sequence[Finished], rest: Consequences) -> set[str]:
            written = await finish(worker, finished, rest)
            self._written(finished, written)
            return written

        async def recorded_and_taken(
            worker: str, finished: Sequence[Finished], rest: Consequences, take_next: TakeNext
        ) -> tuple[set[str], list[TakenRun]]:
            written, taken = await finish_and_take(worker, finished, rest, take_next)
            self._written(finished, written)
            return written, taken

        store.finish, store.finish_and_take = recorded, recorded_and_taken  # type: ignore[method-assign, assignment]
        return LauncherRegistry([FunctionLauncher(), launcher])

    def _written(self, finished: Sequence[Finished], written: set[str]) -> None:
        """Record when these outcomes were written."""
        for each in finished:
            if each.run_id in written:
                self.signals.written_ms[each.run_id, each.attempt] = self.clock.now_ms()

    def _class(self, agent: str, replica: Replica | None) -> type[Agent]:
        """Return the class of an agent, as one process has it."""
        world, ms = self, self.unit_ms

        class Counter(Agent):
            name = agent
            state = {"count": 0, "log": []}
            max_attempts = 4
            timeout = f"{20 * ms}ms"
            backoff = {"base": f"{ms}ms", "max": f"{8 * ms}ms"}
            mailbox = world._mailbox
            dedupe_for = "3650d"
            hibernate_after = f"{60 * ms}ms"

            @on("*")
            async def handle(self, signal: Signal, ctx: Context) -> list[Directive]:
                assert replica is not None
                return await world._handle(replica, signal, ctx)

            async def on_thaw(self, ctx: InstanceContext) -> None:
                world.signals.thaws += 1

            async def on_hibernate(self, ctx: InstanceContext) -> None:
                world.signals.hibernations += 1

        return Counter

    async def _handle(self, replica: Replica, signal: Signal, ctx: Context) -> list[Directive]:
        """Record the call of a handler, and return the directives of its plan."""
        launch = Launched(
            ctx.run_id, ctx._run.job_id, ctx.attempt, ctx.key, replica.worker, self.recorder.seq(),
            self.clock.now_ms(), self.clock.high_ms, self.loop.time(),
        )  # fmt: skip
        assert isinstance(signal.data, dict)
        data, state = signal.data, ctx.state
        handling = Handling(
            launch, ctx.agent, ctx.instance, str(data["token"]), int(str(data.get("depth", 2))), state["log"]
        )
        self.journal.launches.append(launch)
        self.signals.handlings.append(handling)
        replica.running.append(launch)
        end = "cut short"
        try:
            plan = await self.behaviour(handling)
            end = "succeeded"
        except Permanent:
            end = "permanent"
            raise
        except Exception:
            end = "failed"
            raise
        finally:
            if launch in replica.running:
                replica.running.remove(launch)
                self.ended(launch, end)
        handling.plan, handling.returned_ms = plan, self.clock.now_ms()
        counted = SetState(count=state["count"] + 1, log=[*state["log"], ctx.run_id])
        return [counted, *self._directives(handling, plan)]

    def _directives(self, handling: Handling, plan: Plan) -> Iterator[Directive]:
        own = handling.agent, handling.instance
        for each in plan.sends:
            data = {"token": each.token, "depth": handling.depth + 1}
            signal = Signal("work", data, id=each.signal_id)
            if each.delay_ms is not None:
                yield Delay(each.delay_ms, signal)
            else:
                yield Emit(signal, to=SELF if each.to == own else each.to)
        for token in plan.emitted:
            yield Emit(Signal("done", {"token": token}))
        for schedule_id, set_token in plan.crons:
            if set_token is None:
                yield CancelCron(schedule_id)
            else:
                every = f"every {40 * self.unit_ms}ms"
                yield SetCron(every, Signal("tick", {"token": set_token}), schedule_id)
        if plan.stop:
            yield Stop()

    # --- senders and operators ---------------------------------------------------------------------

    async def send(
        self, agent: str, instance: str, signal_id: str, sender: str = "s", through: Replica | None = None
    ) -> Sent | None:
        """Send a signal. None: there was no response, and the signal may have been stored or not."""
        data = {"token": f"{sender}:{signal_id}", "depth": 0}
        signal = Signal("work", data, id=signal_id, source=f"/senders/{sender}")
        arrival = signal_run(
            self.classes[agent],
            instance,
            signal.type,
            signal.to_text(),
            self.clock.now_ms(),
            source=f"/senders/{sender}",
            signal_id=signal_id,
        )
        if through is None:
            (received,) = await self._client.send([arrival], self._mailbox)
        else:
            sending = through.machine.run(through.store.send([arrival], self._mailbox))
            self.sending[sending] = None
            sending.add_done_callback(self.sending.pop)
            await asyncio.wait([sending])
            if sending.cancelled() or isinstance(sending.exception(), Unavailable | Crash):
                return None
            (received,) = sending.result()
        sent = Sent(sender, agent, instance, signal_id, received.run.id)
        self.signals.sent.append(sent)
        return sent

    async def change(self, agent: str, instance: str, what: str) -> None:
        """Pause, resume, stop or start an instance, as an operator does."""
        now_ms, rule = self.clock.now_ms(), self._rule(agent, instance, what)
        await self._client.change_instance("default", agent, instance, now_ms, rule)
        self.note(f"{agent}/{instance}: {what}")

    def _rule(self, agent: str, instance: str, what: str) -> InstanceRule:
        now_ms = self.clock.now_ms()
        declared = read_declared(self.classes[agent], Defaults(), now_ms)
        rules: dict[str, Callable[[], InstanceRule]] = {
            "pause": partial(instance_rules.pause, agent, instance, None, now_ms),
            "resume": partial(instance_rules.resume, agent, instance, now_ms),
            "stop": partial(instance_rules.stop, agent, instance, now_ms),
            "start": partial(instance_rules.start, instance, declared, None, now_ms),
        }
        return rules[what]()

    def hibernate(self, replica: Replica, agent: str, instance: str) -> None:
        """Remove an instance from the memory of a replica."""
        if self.launchers[replica].hibernate(instance_id("default", agent, instance)):
            self.note(f"{agent}/{instance} hibernates")

    # --- results -----------------------------------------------------------------------------------

    def signal_records(self) -> SignalRecords:
        """Return the records of the file."""
        return read_signals(self.recorder)

    def check(self, *, over: bool = False) -> None:
        """Run both checkers. Raises an AssertionError with the complaints."""
        super().check(over=over)
        complaints = checker.check(self.signals, self.signal_records(), over=over)
        if complaints:
            raise AssertionError(
                f"seed {self.seed}: {len(complaints)} complaints\n" + "\n".join(complaints[:20])
            )
