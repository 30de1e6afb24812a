"""`selfScheduling` and `approval` of an agent: the bounds of the jobs that it makes for itself."""

from __future__ import annotations

from typing import Final

from wakeful.document.kinds import Kind, flag, whole
from wakeful.document.objects import check_names, copy_object, read_as, read_object
from wakeful.document.values import refuse, shown
from wakeful.job.job import Json

#: The value of `approval` of an agent whose jobs wait for a person.
REQUIRED: Final = "required"
_EXAMPLE: Final = '{"recurring": true, "perRun": 10, "depth": 5}'
FIELDS: Final[dict[str, Kind]] = {
    "recurring": flag,
    "perRun": whole(0, 1_000),
    "depth": whole(0, 100),
    "outsideRuns": flag,
}


def self_scheduling(value: object) -> dict[str, Json]:
    """Return the bounds of an agent.

    >>> self_scheduling({"recurring": True, "per_run": 10})
    {'recurring': True, 'perRun': 10}
    """
    values = read_object(value, _EXAMPLE)
    check_names(values, "selfScheduling", tuple(FIELDS))
    return copy_object(
        {name: read_as(name, read, values[name]) for name, read in FIELDS.items() if name in values}
    )


def approval(value: object) -> str | None:
    """Return whether jobs that the agent makes wait for a person: `required`, or None.

    >>> approval("required"), approval("none")
    ('required', None)
    """
    if value in (None, "none"):
        return None
    if value != REQUIRED:
        refuse(f"{shown(value)} is not a kind of approval; write 'required', or 'none'")
    return REQUIRED
