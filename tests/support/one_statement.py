"""Let PostgreSQL try each time to write with one statement, also after that was not possible."""

from __future__ import annotations

import pytest


def try_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try each time."""
    monkeypatch.setattr("wakeful.store.postgres.changelog._READ_AGAIN", 0)
    monkeypatch.setattr("wakeful.store.postgres.store._NOT_AT_ONCE", 0)
