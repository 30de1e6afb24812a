"""The examples run as they stand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_embedded_example_wakes_greets_and_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "embedded.py")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("WAKEFUL_")},
    )
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(3)]
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=30)
    assert "hello, you\n" in lines
    assert sum(line.startswith("woken for the tick of") for line in lines) == 2
    assert program.returncode == 0
