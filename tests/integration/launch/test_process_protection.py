"""A command cannot read the credentials of the server that started it."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.command_line import Machine, first_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

SECRETS = {
    "WAKEFUL_SECRET_KEY": "secret-1-of-the-server",
    "WAKEFUL_JWT_SECRET": "secret-2-of-the-server-with-32-bytes",
    "WAKEFUL_METRICS_KEY": "secret-3-of-the-server",
    "WAKEFUL_CHANNEL_OPS": "json://secret-4-of-the-server@example.com",
    "WAKEFUL_KEY": "secret-5-of-the-server",
    "WAKEFUL_UNKNOWN": "secret-6-of-the-server",
    "PGPASSWORD": "secret-7-of-the-server",
}
#: Prints the environment of its parent, as far as readable, and its own.
READER = "tr '\\0' '\\n' < /proc/$PPID/environ; env"
#: Opens files of a process from a child of the same ordinary user, before and after the process is protected.
ORDINARY_USER = """
import ctypes, os, subprocess
from wakeful.app.process_protection import protect_process

PR_SET_DUMPABLE, NOBODY = 4, 65534
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after the start of a program by that user

def readable():
    files = [f"/proc/{os.getpid()}/{name}" for name in ("environ", "maps")]
    return [subprocess.run(["cat", file], capture_output=True).returncode == 0 for file in files]

print(readable())
protect_process()
print(readable())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Start a server as an operator does, with credentials in its environment."""
    home = tmp_path_factory.mktemp("protected")
    (home / "wakeful.toml").write_text(f'commands = ["sh", "{sys.executable}"]\n')
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "wakeful", "serve", "--port", "0", "--json"],
            env={**Machine(home).environment, **SECRETS, "NOT_SECRET": "shown"},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Machine(home, first_json(process)["url"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 0, (home / "log").read_text()


def output(server: Machine, name: str, *argv: str) -> str:
    """Run a command as a job and return its output."""
    said = server.wakeful("add", name, "-s", "@yearly", "--command", shlex.join(argv))
    assert said.code == 0, said.err
    run = server.wakeful("run", name, "--wait", "--json").json
    assert run["state"] == "succeeded", run
    return str(run["output"])


def test_a_command_finds_no_credentials_in_the_environment_of_its_parent(server: Machine):
    said = output(server, "reader", "sh", "-c", READER)
    assert said.count("NOT_SECRET=shown") == 2, "the environments of the parent and its own"
    assert "secret-" not in said
    assert "WAKEFUL_SECRET_KEY" not in said


def test_a_process_of_the_same_ordinary_user_cannot_read_a_protected_process():
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY_USER], cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[True, True]\n[False, False]\n", "")


def test_the_server_still_has_its_settings(server: Machine):
    said = server.wakeful(
        *("add", "hook", "-s", "@yearly", "--url", "https://example.com/hook"), WAKEFUL_WORKSPACE="default"
    )
    assert said.code == 0, said.err
    assert not (server.home / "wakeful.db.key").exists(), "it seals with WAKEFUL_SECRET_KEY"
