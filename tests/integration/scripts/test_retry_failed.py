"""The second try of failed tests in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNSTABLE = """
import pathlib

def test_passes_the_second_time():
    mark = pathlib.Path("tried")
    tried = mark.exists()
    mark.touch()
    assert tried

def test_passes():
    pass
"""
BROKEN = "def test_fails():\n    assert False\n"
MANY = "import pytest\n\n@pytest.mark.parametrize('n', range(4))\ndef test_fails(n):\n    assert False\n"


def in_project(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tests", "code", "says"),
    [
        (UNSTABLE, 0, "UNSTABLE, failed once: test_it.py::test_passes_the_second_time"),
        (BROKEN, 1, "failed tests once more: 1"),
        (MANY, 1, "4 tests failed: not tried again"),
        ("def test_passes():\n    pass\n", 1, "0 tests failed: not tried again"),
    ],
    ids=["unstable", "broken", "many", "another error"],
)
def test_few_failed_tests_are_tried_once_more(tmp_path: Path, tests: str, code: int, says: str) -> None:
    (tmp_path / "test_it.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    in_project(tmp_path, "pytest", "-q")
    done = in_project(tmp_path, "scripts.retry_failed")
    assert (done.returncode, says in done.stdout) == (code, True), done.stdout + done.stderr
