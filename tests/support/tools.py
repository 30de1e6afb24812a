"""Optional programs that some tests use. `make test-tools` installs them.

    python -m tests.support.tools               say which are missing
    python -m tests.support.tools packages      list the Debian packages of the missing ones
    python -m tests.support.tools installed     say which are missing, and fail if they can be installed

Without a program, its tests are skipped. With WAKEFUL_TEST_STRICT they fail, as in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn

import pytest

_STRICT: Final = os.environ.get("WAKEFUL_TEST_STRICT", "") not in ("", "0")

#: The Debian package of a program, and what is tested with it.
_DEBIAN: Final = {
    "bwrap": ("bubblewrap", "a server as process 1 with a read-only root"),
    "caddy": ("caddy", "the proxy of the compose file"),
    "chromium": ("chromium", "the dashboard in a browser: tests/browser"),
    "curl": ("curl", "commands that users copy"),
    "node": ("nodejs", "the examples in JavaScript"),
    "openssl": ("openssl", "commands that users copy"),
    "pgbouncer": ("pgbouncer", "connection poolers"),
    "postgresql": ("postgresql", "another version of the server, in `make test-all`"),
    "promtool": ("prometheus", "the alert rules"),
    "redis-server": ("redis-server", "Celery"),
    "systemd-analyze": ("systemd", "the units, and calendar expressions of systemd"),
}
#: Python packages that are too large for `make test`: the extra `checks`.
_CHECKS: Final = {
    "hadolint": "the Dockerfile",
    "kubernetes_validate": "the schemas of Kubernetes",
    "cyclonedx_py": "the SBOM of a release",
}
#: Programs that Debian does not have, or only too old ones. Their tests are skipped in CI, too.
_ELSEWHERE: Final = {
    "kubectl": "the manifests of the deployment",
    "kube-apiserver": "a control plane of Kubernetes, with etcd and the other programs of it",
}


def find_tool(name: str) -> str | None:
    """Return the path of a program: of .venv, or of the system."""
    if name == "postgresql":
        return next((str(each) for each in Path("/usr/lib/postgresql").glob("*/bin/postgres")), None)
    given = os.environ.get("WAKEFUL_TEST_CHROMIUM") if name == "chromium" else None
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"))
    found = given or shutil.which(name, path=places)
    if found is None and name == "chromium":
        return shutil.which("google-chrome")
    return found


def tool(name: str) -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    return find_tool(name) or skip_without(name)


def tool_module(name: str) -> ModuleType:
    """Return an optional Python module, or skip the test if it is not installed."""
    if find_spec(name) is None:
        skip_without(name)
    return __import__(name)


def skip_without(name: str) -> NoReturn:
    """Skip a test for a missing program; fail it in strict mode if the program can be installed."""
    if name in _ELSEWHERE:
        pytest.skip(f"{name} is not installed")
    if _STRICT:
        pytest.fail(f"{name} is not installed; `make test-tools` installs it")
    pytest.skip(f"{name} is not installed; `make test-tools` installs it")


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Run a program that must succeed; return its output."""
    done = subprocess.run(
        command, cwd=cwd, env=environment or None, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def missing_tools() -> dict[str, str]:
    """Return the programs that are not installed, with what is tested with each."""
    programs = {name: tests for name, (_, tests) in _DEBIAN.items()} | _CHECKS | _ELSEWHERE
    return {
        name: tests for name, tests in programs.items() if find_tool(name) is None and not _is_module(name)
    }


def _is_module(name: str) -> bool:
    return name in _CHECKS and find_spec(name) is not None


def main(command: str = "") -> None:
    """Print the missing programs, or their Debian packages."""
    missing = missing_tools()
    if command == "packages":
        lines = [_DEBIAN[name][0] for name in missing if name in _DEBIAN]
    else:
        lines = [f"   {name:24}{tests}" for name, tests in missing.items()]
        if lines:
            lines.insert(0, "== not installed, so their tests are skipped:")
        if missing.keys() - _ELSEWHERE.keys():
            lines.append("   `make test-tools`, as root on Debian, installs all that Debian and PyPI have")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if command == "installed" and missing.keys() - _ELSEWHERE.keys():
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
