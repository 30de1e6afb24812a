"""The CPU time of a process and its descendants, on Linux."""

from __future__ import annotations

import os
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and its descendants, with those of them that have ended."""
    return sum(process_tree(root).values())


def parent_of(pid: int) -> int:
    """Return the id of the process that started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def process_tree(root: int) -> dict[int, float]:
    """Return the ids of a process and its descendants with the CPU time of each in seconds."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) * _TICK_S
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: seconds[pid] for pid in found if pid in seconds}
