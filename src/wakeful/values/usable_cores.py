"""The number of cores that this process may use: its CPU affinity, and the limit of its control groups."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return the number of usable cores, at least 1. A limit of 1.5 cores counts as 2."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows
        cores = os.cpu_count() or 1
    limits = [limit for file in _limit_files() if (limit := limit_of(_read(file))) is not None]
    return max(1, min([cores, *(math.ceil(limit) for limit in limits)]))


def limit_of(text: str) -> float | None:
    """Return the cores of a `cpu.max` file: quota and period in microseconds; None if there is no limit.

    >>> limit_of("150000 100000"), limit_of("max 100000"), limit_of("")
    (1.5, None, None)
    """
    quota, _, period = text.strip().partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _limit_files() -> list[Path]:
    """Return the `cpu.max` files of the control group of this process and of those around it."""
    own = next((line[3:] for line in _read(_OWN).splitlines() if line.startswith("0::")), "/")
    group = _ROOT / own.lstrip("/")
    groups = [group, *group.parents] if group.is_relative_to(_ROOT) else [_ROOT]
    return [each / "cpu.max" for each in groups if each.is_relative_to(_ROOT)]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
