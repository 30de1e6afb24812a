"""`wakeful serve` that kills itself at the COMMIT of a keyed operation.

`python killed_server.py before|after ARGUMENTS…`
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

from wakeful.cli import main


class _Connection(sqlite3.Connection):
    keyed = False

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if self.keyed and sql == "COMMIT" and sys.argv[1] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = super().execute(sql, *parameters)
        if self.keyed and sql == "COMMIT":
            os.kill(os.getpid(), signal.SIGKILL)
        self.keyed = self.keyed or "UPDATE idempotency_keys" in sql
        return done


if __name__ == "__main__":
    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **options: connect(*args, **{**options, "factory": _Connection})
    sys.exit(main(sys.argv[2:]))
