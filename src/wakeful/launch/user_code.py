"""Awaiting code that users write, so that nothing it does to its task reaches the caller.

User code may cancel its own task, leave a cancellation behind, ignore one, or raise any exception. Attempts
of functions and handlers are awaited in the task of a runner, which is not used again after such an attempt
(`wakeful.engine.runners`). Prechecks, verifications and hooks are awaited here, each in its own task.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

#: Seconds that cancelled code has to end; then it is abandoned.
_STOP_S: Final = 3.0
#: Abandoned tasks, which the event loop alone does not keep.
_ABANDONED: Final[set[asyncio.Task[Any]]] = set()

T = TypeVar("T")


class NoAnswer(Exception):
    """The code did not return in time."""


async def isolate(
    call: Callable[[], Coroutine[Any, Any, T]],
    seconds: float | None = None,
    abandoned: Callable[[], None] = lambda: None,
) -> T:
    """Await user code in a task of its own and return its result.

    What it raises is raised here, but a CancelledError of its own as RuntimeError: only a cancellation of the
    caller is raised as such. Raises NoAnswer after `seconds`. Code that ignores its cancellation runs on, and
    `abandoned` is called.
    """
    ends: list[tuple[T | None, BaseException | None]] = []
    task = asyncio.create_task(_catch(call, ends))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise NoAnswer
    except (NoAnswer, asyncio.CancelledError):
        _ABANDONED.add(task)
        task.add_done_callback(_ABANDONED.discard)
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=_STOP_S)
        finally:
            if not task.done():
                asyncio.tasks._unregister_task(task)  # else `asyncio.run` waits for it at the end
                abandoned()
        raise
    # Not the result of the task: it is cancelled if the code has left a cancellation behind.
    value, error = ends[0] if ends else (None, asyncio.CancelledError())
    if isinstance(error, asyncio.CancelledError):
        raise RuntimeError(f"CancelledError: {error}" if str(error) else "CancelledError") from error
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


async def _catch(
    call: Callable[[], Coroutine[Any, Any, T]], ends: list[tuple[T | None, BaseException | None]]
) -> None:
    """Add the result or the exception: a SystemExit that a task raises would end the event loop."""
    pid = os.getpid()
    try:
        ends.append((await call(), None))
    except BaseException as error:
        ends.append((None, error))
    exit_if_forked(pid)


def exit_if_forked(pid: int) -> None:
    """End a process that user code has forked and that returns from it: it must not continue this program."""
    if os.getpid() != pid:
        os._exit(1)
