"""The parts of a benchmark that are processes of their own: they print JSON, and end with their input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a part of the benchmark as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if os.environ.get("QUIET", "1") == "1" else None,
        text=True,
    )


def read_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process of the benchmark ended; QUIET=0 shows why")
    found: dict[str, Any] = json.loads(line)
    return found


def ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Ask a process for its counts: send it a line, and return the one that it prints."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return read_line(process)


def stop(process: subprocess.Popen[str]) -> None:
    """End a process by the end of its input."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
