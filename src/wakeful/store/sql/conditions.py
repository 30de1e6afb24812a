"""The conditions of lists, as filters put them together."""

from __future__ import annotations

from wakeful.store.sql.driver import Statement, Texts
from wakeful.values.ids import is_id


class Conditions:
    """Conditions of a statement, and its parameters, numbered from $1. The first ones may be given."""

    def __init__(self, *args: object) -> None:
        self.args: list[object] = list(args)
        self._texts: list[Texts] = []

    def mark(self, value: object) -> str:
        """Return the mark of a new parameter."""
        self.args.append(value)
        return f"${len(self.args)}"

    def add(self, condition: Statement) -> None:
        """Add a condition."""
        self._texts.append(Texts(condition, condition) if isinstance(condition, str) else condition)

    def compare(self, column: str, operator: str, value: object | None) -> None:
        """Add a comparison with a value; None does not filter."""
        if value is not None:
            self.add(f"{column} {operator} {self.mark(value)}")

    def sqlite(self, *more: str) -> str:
        """Return the conditions for SQLite, joined, with more of them."""
        return " AND ".join([*(each.sqlite for each in self._texts), *more])

    def text(self, *more: str) -> str:
        """Return the conditions for PostgreSQL, or for both databases, likewise."""
        return " AND ".join([*(each.postgresql for each in self._texts), *more])

    def of_jobs(
        self, table: str, agent: str | None, job: str | None, before: str | None, limit: int
    ) -> tuple[str, str]:
        """Add the conditions of a list of what belongs to jobs. Return all, and the order: newest first.

        `job` is an id or a name. Only rows with an id below `before` are listed: ids are in the order of
        creation.
        """
        self.compare(f"{table}.agent", "=", agent)
        self.compare(f"{table}.job_id" if is_id(job or "") else f"{table}.job_name", "=", job)
        self.compare(f"{table}.id", "<", before)
        return self.text(), f"ORDER BY {table}.id DESC LIMIT {self.mark(limit)}"
