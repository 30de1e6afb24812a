"""A store without fences, for tests which show that the checker finds what fences prevent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wakeful.store.sqlite import outcomes, statements


def without_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the outcome of every run, also of one that another worker holds or that is over."""
    for name in ("SUCCEED", "SUCCEED_WITH_OUTPUT"):
        statement = getattr(statements, name)
        assert statements.FENCE_OF_MANY in statement.after
        without = replace(statement, after=") v WHERE runs.id = v.column1 AND ?1 IS ?1")
        monkeypatch.setattr(statements, name, without)
    assert statements.FENCE in statements.FINISH
    text = statements.FINISH.replace(statements.FENCE, "WHERE id = :run_id")
    monkeypatch.setattr(statements, "FINISH", text)
    monkeypatch.setattr(outcomes, "_find_held", lambda db, worker, finished: list(finished))
