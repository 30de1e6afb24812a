"""Which of the processes of one server this is, and how many cores it may use.

`wakeful serve --processes` starts several. A process knows its share from its start on: its number, which the
log and the connections to the database show, and its part of each lane. A process that is alone has all of
it.
"""

from __future__ import annotations

import math
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The number of the supervisor, which starts the others and runs no engine.
SUPERVISOR: Final = 0
_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """The number of a process, from 1, and how many there are. The supervisor has the number 0."""

    number: int = 1
    count: int = 1
    #: the process id of the supervisor; None: this process is alone
    supervisor_pid: int | None = None

    @property
    def alone(self) -> bool:
        """Whether this process has no supervisor and no siblings."""
        return self.supervisor_pid is None

    def divide_lane(self, size: int) -> int:
        """Return the part of a lane of that size: the parts add up to it, and each is at least 1.

        >>> [ProcessShare(number, 4).divide_lane(30) for number in (1, 2, 3, 4)]
        [8, 8, 7, 7]
        >>> [ProcessShare(number, 4).divide_lane(2) for number in (1, 2, 3, 4)]
        [1, 1, 1, 1]
        """
        whole, rest = divmod(size, self.count)
        return max(1, whole + (1 if self.number <= rest else 0))

    @property
    def server_connections(self) -> str:
        """The start of the names of all connections of the server that this process is part of."""
        return f"wakeful {socket.gethostname()[:30]}:{self.supervisor_pid or os.getpid()}"

    @property
    def connection_name(self) -> str:
        """The `application_name` of the connections of this process to the database.

        >>> ProcessShare(2, 4, 71).connection_name.split(":")[1]
        '71 process 2'
        """
        return self.server_connections + ("" if self.alone else f" process {self.number}")


_share = ProcessShare()


def current_share() -> ProcessShare:
    """Return the share of this process."""
    return _share


def set_share(share: ProcessShare) -> None:
    """Set the share of this process, before it creates anything else."""
    global _share
    _share = share


def usable_cores() -> int:
    """Return the number of usable cores, at least 1. A limit of 1.5 cores counts as 2."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS and Windows
        cores = os.cpu_count() or 1
    limits = [limit for file in _limit_files() if (limit := parse_core_limit(_read(file))) is not None]
    return max(1, min([cores, *(math.ceil(limit) for limit in limits)]))


def parse_core_limit(text: str) -> float | None:
    """Return the cores of a `cpu.max` file: quota and period in microseconds; None if there is no limit.

    >>> parse_core_limit("150000 100000"), parse_core_limit("max 100000"), parse_core_limit("")
    (1.5, None, None)
    """
    quota, _, period = text.strip().partition(" ")
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _limit_files() -> list[Path]:
    """Return the `cpu.max` files of the control group of this process and of those around it."""
    own = next((line[3:] for line in _read(_OWN_CGROUP).splitlines() if line.startswith("0::")), "/")
    group = _CGROUP_ROOT / own.lstrip("/")
    groups = [group, *group.parents] if group.is_relative_to(_CGROUP_ROOT) else [_CGROUP_ROOT]
    return [each / "cpu.max" for each in groups if each.is_relative_to(_CGROUP_ROOT)]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
