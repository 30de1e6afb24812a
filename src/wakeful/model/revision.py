"""Revisions of jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from wakeful.values.json_value import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """A changed field of a job, in the spelling of the API, with its values before and after."""

    field: str
    before: Json
    after: Json
    #: only credentials changed, which are not kept
    hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A change of the definition of a job, or its creation."""

    #: the `revision` of the job after the change
    revision: int
    at: datetime
    #: role and name of who made it, such as `admin:key:1f`; None: not recorded
    by: str | None
    #: empty for the creation
    changes: tuple[FieldChange, ...]
