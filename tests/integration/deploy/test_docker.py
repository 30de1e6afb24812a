"""The image and the compose file in `deploy/`: consistent, and the program runs in such a container.

There is no Docker in the tests. A sandbox has what matters of a container: the program is process 1, without
privileges, and all but its own directory is read-only.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.docs.test_examples import free_port
from tests.support.command_line import first_json
from tests.support.deploy_files import unknown_settings
from tests.support.paths import ROOT
from tests.support.tools import run, tool
from tests.support.waiting import PATIENCE
from wakeful.settings import read_settings

DOCKER = ROOT / "deploy/docker"
DOCKERFILE = DOCKER / "Dockerfile"


def instructions(name: str) -> list[str]:
    """Return the arguments of all instructions of that name in the last stage."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    last = text[text.rindex("\nFROM ") :]
    return re.findall(rf"^{name} (.*)$", last, re.MULTILINE)


def compose() -> Any:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


# --- the image -----------------------------------------------------------------------------------


def test_the_dockerfile_passes_hadolint():
    run(tool("hadolint"), str(DOCKERFILE))


def test_the_image_has_no_root_user_a_health_check_and_exec_forms():
    (user,) = instructions("USER")
    assert int(user.split(":")[0]) > 0
    for name in ("ENTRYPOINT", "CMD"):
        (command,) = instructions(name)
        assert isinstance(yaml.safe_load(command), list)
    (check,) = instructions("HEALTHCHECK")
    assert yaml.safe_load(check.partition(" CMD ")[2]) == ["python", "/opt/wakeful/healthcheck.py"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


def test_what_the_image_copies_exists_and_is_not_ignored():
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")]
    assert rules[0] == "*"
    allowed = [line[1:] for line in rules if line.startswith("!")]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in shlex.split(line)[:-1]
    ]
    assert {"src", "pyproject.toml"} <= set(copied)
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source


def sandbox(home: Path, *command: str, **environment: str) -> list[str]:
    """Return the command line of a program as process 1, without privileges and with a read-only root."""
    bwrap = tool("bwrap")
    user = ("--unshare-user", "--uid", "10001", "--gid", "10001")
    if subprocess.run([bwrap, *user, "--ro-bind", "/", "/", "true"], check=False).returncode != 0:
        pytest.skip("this machine does not allow user namespaces")
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    settings = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    return [
        *(bwrap, "--die-with-parent", *user, "--unshare-pid", "--as-pid-1"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(home), str(home)),
        *("--chdir", str(home), "--clearenv", *settings, *command),
    ]


def child_of(process: subprocess.Popen[str]) -> int:
    """Return the process that a sandbox runs."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def healthy(port: int) -> bool:
    check = [sys.executable, str(DOCKER / "healthcheck.py")]
    environment = {**os.environ, "WAKEFUL_PORT": str(port)}
    return subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0


def test_the_server_runs_as_process_1_with_a_read_only_root(tmp_path: Path):
    port, home = free_port(), tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-m", "wakeful", "serve", "--wait-for-db", "--json"]
    box = sandbox(
        home, *command, WAKEFUL_PORT=str(port), WAKEFUL_DB=f"sqlite:///{home}/a.db", WAKEFUL_HOST="0.0.0.0"
    )
    process = subprocess.Popen(box, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert first_json(process)["pid"] == 1
        assert healthy(port)
        assert list(home.glob("a.db"))
        with pytest.raises(subprocess.CalledProcessError):
            subprocess.run(sandbox(home, "touch", str(ROOT / "README.md")), check=True, capture_output=True)
    finally:
        os.kill(child_of(process), signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log
    assert not healthy(port)


def test_process_1_stops_while_it_waits_for_the_database(tmp_path: Path):
    database = tmp_path / "nowhere/a.db"
    command = [sys.executable, "-m", "wakeful", "serve", "--port", "0", "--wait-for-db"]
    box = sandbox(tmp_path, *command, WAKEFUL_DB=f"sqlite:///{database}")
    process = subprocess.Popen(box, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any("database.waiting" in line for line in process.stderr)
    os.kill(child_of(process), signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


# --- the compose file ----------------------------------------------------------------------------


def test_the_replicas_are_restricted_and_have_time_to_stop():
    wakeful = compose()["services"]["wakeful"]
    assert wakeful["deploy"]["replicas"] == 3
    assert wakeful["read_only"] is True
    assert wakeful["cap_drop"] == ["ALL"]
    assert wakeful["stop_grace_period"] == "45s"
    assert "ports" not in wakeful, "several replicas cannot publish one port"
    (user,) = instructions("USER")
    uid, gid = user.split(":")
    assert f"/var/lib/wakeful:uid={uid},gid={gid},mode=0700" in wakeful["tmpfs"]
    assert (DOCKER / wakeful["build"]["context"] / wakeful["build"]["dockerfile"]).samefile(DOCKERFILE)


def test_the_files_name_settings_that_exist():
    text = "".join((DOCKER / name).read_text() for name in ("Dockerfile", "compose.yaml", "healthcheck.py"))
    assert unknown_settings(text) == set()


def test_the_environment_file_has_every_variable_with_a_valid_value(tmp_path: Path):
    for name in ("create-env", ".env.example"):
        shutil.copy(DOCKER / name, tmp_path / name)
    run(str(tmp_path / "create-env"))
    file = tmp_path / ".env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = file.read_text()
    values = dict(line.split("=", 1) for line in first.splitlines() if line and not line.startswith("#"))
    named = set(re.findall(r"\$\{(\w+)", (DOCKER / "compose.yaml").read_text()))
    assert named == set(values)
    assert all(values.values())
    assert len({values[name] for name in ("POSTGRES_PASSWORD", "WAKEFUL_SECRET_KEY")}) == 2
    settings = read_settings({name: value for name, value in values.items() if name != "PUBLISH"})
    assert settings.admin_key == values["WAKEFUL_ADMIN_KEY"]
    run(str(tmp_path / "create-env"))
    assert file.read_text() == first, "a second call changes no secret"


def test_the_configuration_of_the_proxy_is_valid():
    run(tool("caddy"), "validate", "--config", str(DOCKER / "Caddyfile"), "--adapter", "caddyfile")
