"""Scripts for command tests, and the state of their processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.support.waiting import eventually
from tests.unit.launch.launches import launch
from wakeful.launch.command import CommandLauncher
from wakeful.launch.command_rules import CommandAllowlist, EnvironmentAllowlist
from wakeful.run.outcome import Outcome
from wakeful.settings import Settings
from wakeful.values.json_value import Json

#: Prints its process ids and waits; it and its grandchild ignore SIGTERM.
STUBBORN = """
trap '' TERM
sh -c 'trap "" TERM; while :; do sleep 60; done' &
echo $$ $! > "$1.new" && mv "$1.new" "$1"
while :; do sleep 60; done
"""
#: The same, but it exits on SIGTERM and prints that.
OBEDIENT = """
trap 'echo cleaned up > "$1.said"; exit 0' TERM
sleep 60 &
echo $$ $! > "$1.new" && mv "$1.new" "$1"
wait
"""


def sh(script: str, *arguments: object, **fields: Json) -> dict[str, Json]:
    """Return the target that runs a script."""
    return {"kind": "command", "argv": ["sh", "-c", script, "sh", *map(str, arguments)], **fields}


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not Path("/proc/self").exists()
    return False


async def processes(file: Path) -> list[int]:
    """Wait for the process ids that a script writes, and return them."""
    return await eventually(lambda: _numbers(file))


def _numbers(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


@asynccontextmanager
async def under_way(
    launcher: CommandLauncher, target: dict[str, Json], file: Path
) -> AsyncIterator[tuple[asyncio.Task[Outcome], list[int]]]:
    """Start a script and return its launch and its running processes."""
    task = asyncio.create_task(launcher.start(launch(target)))
    pids = await processes(file)
    assert all(map(alive, pids))
    try:
        yield task, pids
    finally:
        task.cancel()
        await asyncio.wait({task})


def command_launcher(*commands: str) -> CommandLauncher:
    """Return a launcher that allows these commands, and the default environment names."""
    return CommandLauncher(CommandAllowlist(commands), EnvironmentAllowlist(Settings().command_env))
