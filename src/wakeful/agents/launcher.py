"""The launcher of signals: it loads an instance, calls the handler, and returns what is to be written.

The state comes with the run, as it was when the run was taken. Nothing is written here: the directives of the
handler are part of the outcome, and take effect in the transaction that writes it. A failure never has
directives. If the state cannot be read or migrated, the outcome blocks the instance; the state stays as it
is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from wakeful.agents.agent import matches
from wakeful.agents.class_registry import ClassRegistry, RegisteredClass
from wakeful.agents.context import Context, Memory
from wakeful.agents.directives import CancelCron, SetCron, SetState
from wakeful.agents.effects import DirectiveEffects, Refused, Returned, UnsavedChanges, effects, read_returned
from wakeful.agents.instance_cache import MAX_INSTANCES, CachedInstance, InstanceCache, Invoker
from wakeful.agents.state import state_from_text, state_to_text
from wakeful.document import Defaults
from wakeful.errors import InvalidArgument, Permanent, Unavailable
from wakeful.launch.function import DEFAULT_THREADS, HandlerContext, error_text, function_not_started
from wakeful.launch.port import Launch, Launcher, truncate
from wakeful.launch.user_code import NoThread, isolate
from wakeful.logs import get_logger
from wakeful.run.instances import (
    BLOCKED,
    DIRECTIVE_REFUSED,
    JOB_SIGNAL,
    AgentClass,
    InstanceLimits,
    Send,
    current_instance,
)
from wakeful.run.outcome import Failed, Handled, Outcome, Succeeded
from wakeful.signal.signals import Signal
from wakeful.values.clock import Clock
from wakeful.values.instants import utc_datetime
from wakeful.values.json_value import Json

#: The reason of a failed attempt of a signal that no handler handles.
UNHANDLED: Final = "unhandled"
#: The reason of an attempt in a process that does not have the class, or only an older version of it.
NOT_REGISTERED: Final = "not_registered"

_UNSAVED: Final = "it changed ctx.state, which is a copy, and nothing is stored; return SetState(...)"


#: Returns the defaults of the jobs of an agent: (workspace, agent) -> defaults.
DefaultsOf = Callable[[str, str], Awaitable[Defaults]]
#: Reads the newest version of the class of an agent: (workspace, agent) -> class.
NewestClass = Callable[[str, str], Awaitable[AgentClass | None]]
#: Returns whether a running process has this version of a class: (workspace, agent, version) -> whether.
HasProcess = Callable[[str, str, int], Awaitable[bool]]
#: Keeps delays in memory: (run, signals). They start when the outcome of this attempt is written.
KeepDelays = Callable[[Launch, Sequence[Send]], None]

log = get_logger("wakeful.agents")


class _State(NamedTuple):
    #: the state as compact JSON, in the form of this version of the class
    text: str
    #: what the handler gets
    value: object
    #: whether it was stored in the form of an older version
    migrated: bool


class _Unreadable(Exception):
    """The state cannot be read or migrated."""


class AgentLauncher(Launcher):
    """Hands signals to the handlers of agent classes."""

    kind = "agent"
    default_timeout_ms = 60_000

    def __init__(
        self,
        classes: ClassRegistry,
        clock: Clock,
        *,
        defaults_of: DefaultsOf | None = None,
        keep_delays: KeepDelays | None = None,
        newest_class: NewestClass | None = None,
        has_process: HasProcess | None = None,
        limits: InstanceLimits | None = None,
        threads: int = DEFAULT_THREADS,
        context: HandlerContext | None = None,
        max_instances: int = MAX_INSTANCES,
    ) -> None:
        self.classes = classes
        self._clock = clock
        #: the defaults of `SetCron`; None: those of Wakeful
        self.defaults_of = defaults_of
        #: where delays with `durable=False` are kept; None: they are durable
        self.keep_delays = keep_delays
        #: which class the database knows; None: the one of this process
        self.newest_class = newest_class
        #: whether another process can handle what this one cannot; None: it cannot
        self.has_process = has_process
        self._limits = limits or InstanceLimits()
        self._invoker = Invoker(threads, context)
        self._unsaved = UnsavedChanges()
        #: the objects in memory
        self.cache = InstanceCache(clock, self._invoker, max_instances)

    @property
    def on_capabilities_changed(self) -> Callable[[], object]:
        """Called when a class is registered."""
        return self.classes.on_registered

    @on_capabilities_changed.setter
    def on_capabilities_changed(self, call: Callable[[], object]) -> None:
        self.classes.on_registered = call

    def capabilities(self) -> Mapping[str, int]:
        """Return what runs of the registered classes require, each with the version of the class."""
        return self.classes.capabilities

    async def close(self) -> None:
        """Remove all objects from memory, and stop the threads."""
        await self.cache.close()
        self._invoker.close()

    def check(self, target: Mapping[str, Json]) -> None:
        """Accept every target: its fields are checked with its document; the class may be elsewhere."""

    def hibernate(self, instance: str) -> bool:
        """Remove the object of an instance, by its id, from memory. Returns whether there was an idle one."""
        return self.cache.hibernate(instance)

    async def start(self, run: Launch) -> Outcome:
        """Handle the signal of a run."""
        registered = self.classes.get(run.workspace, run.agent)
        if registered is None:
            return _not_registered(f"no class of the agent '{run.agent}' is registered in this process")
        if run.state_version > registered.version:
            return _not_registered(
                f"the state of this instance has version {run.state_version}, and {registered.cls.__name__} "
                f"in this process has version {registered.version}"
            )
        try:
            signal = signal_of_run(run)
        except Exception as error:
            message = truncate(f"the signal of this run cannot be read: {error}")
            return Failed(message, permanent=True, reason="unreadable")
        if registered.handlers.find(signal.type) is None:
            return await self._no_handler(registered, signal)
        if run.instance is None or run.instance_id is None:
            # Without its instance there is no state, and a handler must not see another one.
            return Failed("the run has no instance; run the job again", permanent=True, reason="unreadable")
        return await self._handle(run, registered, run.instance, run.instance_id, signal)

    async def _no_handler(self, registered: RegisteredClass, signal: Signal) -> Failed:
        """Return a permanent failure, unless a newer version of the class handles the type.

        During a deployment, a process with the newer version may take the next attempt. While such a process
        runs, the attempts of this one do not count.
        """
        known = ", ".join(registered.handlers.patterns[:20])
        message = truncate(
            f"{registered.cls.__name__} has no handler for '{signal.type}'; it handles {known}"
        )
        where = registered.workspace, registered.agent
        try:
            newest = await self.newest_class(*where) if self.newest_class else None
            permanent = (
                newest is None
                or newest.version <= registered.version
                or not any(matches(pattern, signal.type) for pattern in newest.handles)
            )
            counted = (
                permanent
                or newest is None
                or self.has_process is None
                or not await self.has_process(*where, newest.version)
            )
        except Unavailable:
            return Failed(message, reason=UNHANDLED, counted=False)
        return Failed(message, permanent=permanent, reason=UNHANDLED, counted=counted)

    async def _handle(
        self, run: Launch, registered: RegisteredClass, instance: str, id_: str, signal: Signal
    ) -> Outcome:
        entry: CachedInstance | None = None
        try:
            entry = self.cache.acquire(id_, instance, registered, run.revision, run.instance_created_ms)
            state = await self._load(run, registered, entry)
            await self.cache.thaw(entry, state.text)
            outcome = await self._run_handler(run, registered, entry, signal, state)
        except _Unreadable as error:
            self._discard(entry)
            return _block(run, registered, instance, str(error))
        except asyncio.CancelledError:  # a thread may still use the object
            self._discard(entry)
            raise
        except BaseException as error:  # the class cannot be instantiated
            self._discard(entry)
            return _log_failure(run, error)
        handled = outcome.handled if isinstance(outcome, Succeeded) else None
        if handled is None or handled.data is None:
            self.cache.release(entry, run.revision, state.text)
        else:
            self.cache.release(entry, run.revision + 1, handled.data)
        if handled is not None and handled.stop:
            self.cache.hibernate(id_)
        return outcome

    def _discard(self, entry: CachedInstance | None) -> None:
        if entry is not None:
            self.cache.discard(entry)

    async def _load(self, run: Launch, registered: RegisteredClass, entry: CachedInstance) -> _State:
        """Return the state in the form of this version of the class."""
        if run.state_text is None:
            stored = registered.state.initial()
            return _State(registered.initial_text, registered.state.load(stored), False)
        old = 0 < run.state_version < registered.version
        try:
            stored = state_from_text(run.state_text)
            if not old:
                return _State(run.state_text, registered.state.load(stored), False)
        except Exception as error:
            raise _Unreadable(
                f"the state cannot be read: {_text(error)}; correct the class, or raise its version and "
                "convert the state in `migrate`"
            ) from error
        try:
            new = await isolate(
                lambda: self._invoker.call(
                    entry.object.migrate,
                    stored,
                    run.state_version,
                    abandoned=lambda: _log_abandoned(run, "migrate"),
                )
            )
            if new is None:
                raise InvalidArgument("migrate returned nothing; return the new state")
            stored = registered.state.replace(new)
            text = state_to_text(stored)
            return _State(text, registered.state.load(state_from_text(text)), True)
        except (asyncio.CancelledError, NoThread):
            raise
        except BaseException as error:
            raise _Unreadable(
                f"the state cannot be migrated from version {run.state_version} to {registered.version}: "
                f"{_text(error)}"
            ) from error

    async def _run_handler(
        self, run: Launch, registered: RegisteredClass, entry: CachedInstance, signal: Signal, state: _State
    ) -> Outcome:
        handler = registered.handlers.find(signal.type)
        assert handler is not None
        memory = Memory(run.memory)
        context = Context(run, entry.instance, signal, self._clock, state.value, memory, registered.dedupe_ms)
        arguments = (signal, context)[: handler.arguments]
        token = current_instance.set(run.instance_id)
        try:
            value = await self._invoker.call(
                getattr(entry.object, handler.name),
                *arguments,
                abandoned=lambda: _log_abandoned(run, handler.name),
            )
            returned = read_returned(value)
            result = await self._effects(registered, entry.instance, returned, state, signal)
        except Permanent as error:
            return Failed(error_text(error), permanent=True, reason="permanent")
        except Refused as error:
            log.warning("handler.refused", **run.log_fields, handler=handler.name, error=error.message)
            return Failed(
                truncate(error.message), permanent=error.permanent, reason=error.reason, counted=error.counted
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return _log_failure(run, error, handler.name)
        finally:
            current_instance.reset(token)
        stores = any(isinstance(each, SetState) for each in returned.directives)
        if not stores and self._unsaved.find(registered, handler.name, state.value, state.text):
            log.warning("handler.state_unsaved", **run.log_fields, handler=handler.name, error=_UNSAVED)
        for each in returned.directives:
            if isinstance(each, SetCron) and registered.handlers.find(each.signal) is None:
                log.warning(
                    "handler.schedule_unhandled", **run.log_fields, handler=handler.name,
                    error=f"SetCron '{each.job_id}': {registered.cls.__name__} has no handler for "
                    f"'{each.signal}'",
                )  # fmt: skip
        if result.volatile:
            if self.keep_delays is None:
                result.sends += result.volatile
            else:
                self.keep_delays(run, result.volatile)
        changed = state.migrated or result.state_text != result.old_text
        handled = Handled(
            run.workspace,
            run.agent,
            entry.instance,
            run.revision,
            registered.version,
            data=result.state_text if changed else None,
            memory=memory.to_text(signal.type, self._clock.now_ms(), registered.dedupe_ms),
            sends=tuple(result.sends),
            delay_ids=tuple(result.delay_ids),
            schedules=tuple(result.schedules.values()),
            stop=result.stop,
            emitted=f"[{','.join(result.emitted)}]" if result.emitted else None,
            limits=self._limits,
            depth=run.depth,
        )
        output = None if returned.output is None else truncate(returned.output)
        return Succeeded(output, handled=handled)

    async def _effects(
        self,
        registered: RegisteredClass,
        instance: str,
        returned: Returned,
        state: _State,
        signal: Signal,
    ) -> DirectiveEffects:
        defaults = None
        if self.defaults_of is not None and any(
            isinstance(each, SetCron | CancelCron) for each in returned.directives
        ):
            try:
                defaults = await self.defaults_of(registered.workspace, registered.agent)
            except Unavailable as error:  # not an error of the handler
                message = f"SetCron: {error.message}"
                raise Refused(message, DIRECTIVE_REFUSED, permanent=False, counted=False) from None
        now_ms = self._clock.now_ms()
        return effects(returned.directives, registered, instance, state.text, now_ms, defaults, signal)


def _not_registered(message: str) -> Failed:
    return Failed(message, reason=NOT_REGISTERED, counted=False)


def _block(run: Launch, registered: RegisteredClass, instance: str, why: str) -> Failed:
    why = truncate(why)
    log.error("instance.blocked", **run.log_fields, instance=instance, error=why)
    handled = Handled(run.workspace, run.agent, instance, run.revision, registered.version, block=why)
    return Failed(why, reason=BLOCKED, counted=False, handled=handled)


def _log_failure(run: Launch, error: BaseException, handler: str | None = None) -> Failed:
    if isinstance(error, NoThread):
        return function_not_started(error)
    log.warning("handler.failed", **run.log_fields, handler=handler, exc_info=error)
    return Failed(error_text(error))


def _log_abandoned(run: Launch, handler: str) -> None:
    log.warning(
        "handler.abandoned",
        **run.log_fields,
        handler=handler,
        reason="it was stopped or timed out, but a thread cannot be stopped: it runs on",
    )


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, InvalidArgument) else error_text(error)


def signal_of_run(run: Launch) -> Signal:
    """Return the signal that a run carries to its handler.

    A run without a job has the CloudEvent as its payload. Of a job, the type is that of the run, else that of
    the target, and the data is the payload; the id is the idempotency key, so it is the same for every
    attempt and replay.
    """
    if run.job_id is None and run.payload_text is not None:
        return Signal.from_stored(run.payload_text)
    own = run.target.get("signal")
    return Signal.of_job(
        run.signal or (own if isinstance(own, str) and own else JOB_SIGNAL),
        run.payload,
        id=run.idempotency_key,
        source=f"/workspaces/{run.workspace}/agents/{run.agent}/jobs/{run.job or run.job_id or ''}",
        time=utc_datetime(run.scheduled_ms),
    )
