"""`scripts/install.py` trusts only finished installations."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory with the script and an environment without pip, in which it cannot install."""
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "constraints.txt", "scripts/install.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
    return tmp_path


def install(project: Path, part: str = "product") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(project / "scripts/install.py"), part],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def stamp(project: Path, name: str) -> Path:
    file = project / ".venv" / name
    file.write_text(str(project.resolve()))
    return file


def test_a_finished_installation_is_not_repeated(project: Path):
    stamp(project, ".product")

    done = install(project)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_failed_installation_leaves_no_stamp_and_says_why(project: Path):
    done = install(project)

    assert done.returncode == 1
    assert "No module named pip" in done.stderr
    assert "the next `make` tries again" in done.stderr
    assert not (project / ".venv/.product").exists()


def test_the_tools_have_a_stamp_of_their_own(project: Path):
    stamp(project, ".product")

    assert install(project).returncode == 0
    assert "developer tools" in install(project, "tools").stdout
    assert (project / ".venv/.product").exists()
    assert not (project / ".venv/.tools").exists()


def test_changed_dependencies_are_installed_again(project: Path):
    file = stamp(project, ".product")
    changed = file.stat().st_mtime + 10
    os.utime(project / "constraints.txt", (changed, changed))

    assert install(project).returncode == 1
    assert not file.exists()
