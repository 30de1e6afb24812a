"""Check what was changed, while editing: style, types, and the unit tests of the changed packages.

    python -m scripts.check            what differs from the last commit
    python -m scripts.check main       what differs from a branch

`make lint` and `make test` check everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BIN: Final = Path(sys.executable).parent


def main(since: str) -> int:
    """Run the checks; return the exit code."""
    changed = changed_files(since)
    commands = [["ruff", "check"], ["ruff", "format", "--check"]]
    if changed:
        commands.append(["mypy", "--strict", *changed])
    tests = tests_of(changed)
    if tests:
        commands.append(["pytest", "-q", "-n", str(os.cpu_count() or 1), *tests])
    for command in commands:
        code = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT).returncode
        if code:
            return code
    return 0


def changed_files(since: str) -> list[str]:
    """Return the Python files that differ from a commit, and new ones."""
    commands = (["diff", "--name-only", since], ["ls-files", "--others", "--exclude-standard"])
    found = [
        name
        for command in commands
        for name in subprocess.run(
            ["git", *command], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    ]
    return sorted({name for name in found if name.endswith(".py") and (ROOT / name).exists()})


def tests_of(changed: list[str]) -> list[str]:
    """Return the unit tests that were changed, and those of the changed packages.

    >>> tests_of(["src/wakeful/cron/zone.py", "tests/unit/cron/test_dst.py", "src/wakeful/errors.py"])
    ['tests/unit/cron', 'tests/unit/test_layout.py']
    """
    found = {"tests/unit/test_layout.py"} if changed else set[str]()
    for name in changed:
        parts = Path(name).parts
        if parts[:2] == ("src", "wakeful") and len(parts) > 3:
            found.add(f"tests/unit/{parts[2]}")
        elif parts[:2] == ("tests", "unit"):
            found.add(name)
    packages = [each for each in found if (ROOT / each).is_dir()]
    return sorted(
        each
        for each in found
        if (ROOT / each).exists() and not any(each.startswith(f"{package}/") for package in packages)
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["HEAD"]))
