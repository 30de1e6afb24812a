"""A transaction that begins again waits for the write lock, as every transaction does."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from wakeful.store.sqlite.connection import begin_again


def test_it_waits_while_another_connection_writes(tmp_path: Path) -> None:
    one, other = (
        sqlite3.connect(tmp_path / "a.db", isolation_level=None, timeout=0, check_same_thread=False)
        for _ in range(2)
    )
    one.execute("PRAGMA journal_mode = WAL")
    one.execute("BEGIN")
    other.execute("BEGIN IMMEDIATE")
    tries = 0

    def trace(statement: str) -> None:
        nonlocal tries
        tries += statement == "BEGIN IMMEDIATE"
        if tries == 2 and other.in_transaction:
            other.execute("COMMIT")

    one.set_trace_callback(trace)
    begin_again(one)
    assert one.in_transaction
    assert tries >= 2
    one.execute("ROLLBACK")
    one.close()
    other.close()
