"""The conditions of a list of jobs (`JobFilter`), for both databases.

All but `failing` are decided from the entries of the index jobs_list, so that a search reads no row of the
table that it does not return. Labels are found in their text: it is compact JSON, in which a name follows a
brace or a comma that no backslash precedes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.job.job import AGENT_INACTIVE
from wakeful.job.self_scheduling import APPROVAL
from wakeful.store.rows import JobFilter
from wakeful.values.json_value import compact

#: The states of jobs in lists, each as a condition on a job `j`.
STATES: Final = {
    "active": "j.enabled",
    "paused": "j.disabled_reason = 'paused'",
    "approval": f"j.disabled_reason = '{APPROVAL}'",
    "inactive": f"j.disabled_reason = '{AGENT_INACTIVE}'",
    "ended": f"NOT j.enabled AND coalesce(j.disabled_reason, '') NOT IN ('paused', '{APPROVAL}', "
    f"'{AGENT_INACTIVE}')",
    "failing": "j.failures > 0",
}
CREATORS: Final = {
    "agent": "j.created_by LIKE 'agent:%'",
    "person": "j.created_by <> '' AND j.created_by NOT LIKE 'agent:%'",
}

#: Fewer jobs than this are sorted by their next tick. More are read in the order of all ticks, in which few
#: other jobs lie between them.
FEW: Final = 2_000

Value = str | int


class SqlDialect(NamedTuple):
    """How a database writes what the other writes otherwise."""

    #: the function that returns where a text has another, 0: nowhere
    position: str
    #: the labels of a job
    labels: str
    #: the kinds of its schedule and its target
    schedule_kind: str = "j.schedule_kind"
    target_kind: str = "j.target_kind"


class Conditions:
    """Conditions and their parameters, numbered from $1."""

    def __init__(self, dialect: SqlDialect, only: JobFilter) -> None:
        self._dialect = dialect
        self.args: list[Value] = []
        self._texts = ["j.deleted_at IS NULL", f"j.workspace = {self.mark(only.workspace)}"]
        self._add(only)

    def mark(self, value: Value) -> str:
        """Return the mark of a new parameter."""
        self.args.append(value)
        return f"${len(self.args)}"

    @property
    def text(self) -> str:
        """The conditions, joined."""
        return " AND ".join(self._texts)

    def _add(self, only: JobFilter) -> None:
        texts = self._texts
        for expression, value in (
            ("j.agent", only.agent),
            ("j.name", only.name),
            ("j.created_by", only.created_by),
            (self._dialect.schedule_kind, only.schedule_kind),
            (self._dialect.target_kind, only.target_kind),
        ):
            if value is not None:
                texts.append(f"{expression} = {self.mark(value)}")
        if not only.include_disabled:
            texts.append("j.enabled")
        if only.q:
            texts.append(self._found(only.q))
        if only.state is not None:
            texts.append(STATES[only.state])
        if only.creator is not None:
            texts.append(CREATORS[only.creator])
        for name, value in only.labels:
            entry = f"{compact(name)}:" + ("" if value is None else compact(value))
            anywhere, first, later = (
                self._contains(self._dialect.labels, mark + entry) for mark in ("", "{", ",")
            )
            texts.append(f"{anywhere} AND ({first} OR {later})")

    def after_name(self, only: JobFilter) -> None:
        """Add that a job comes after the last one of the previous page, by name."""
        if only.after is not None:
            agent, name = map(self.mark, only.after)
            self._texts.append(f"(j.agent, j.name) > ({agent}, {name})")

    def add(self, condition: str) -> None:
        """Add a condition."""
        self._texts.append(condition)

    def _found(self, q: str) -> str:
        """Return that `agent/name` has this text. To put the two together would cost more than the search."""
        agent, slash, name = q.rpartition("/")
        if not slash:
            mark = self.mark(q)
            position = self._dialect.position
            return f"({position}(j.name, {mark}) > 0 OR {position}(j.agent, {mark}) > 0)"
        ends = (
            f"substr(j.agent, length(j.agent) - {len(agent) - 1}) = {self.mark(agent)}" if agent else "true"
        )
        starts = f"substr(j.name, 1, {len(name)}) = {self.mark(name)}" if name else "true"
        return f"{ends} AND {starts}"

    def _contains(self, text: str, part: str) -> str:
        return f"{self._dialect.position}({text}, {self.mark(part)}) > 0"
