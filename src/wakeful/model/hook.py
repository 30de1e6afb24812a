"""Trigger URLs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The trigger URL of a job."""

    #: names the URL in runs (`triggered_by` is `hook:ID`) and logs
    id: str
    created_at: datetime
    #: role and name of its creator, such as `admin:key:1f`
    created_by: str
    #: the URL before it, and until when that one works
    previous_id: str | None
    previous_until: datetime | None
    #: the URL; only in `create_hook`, and None in an embedded app without `WAKEFUL_PUBLIC_URL`
    url: str | None = field(default=None, repr=False)
    #: the last part of the URL; only in `create_hook`
    token: str | None = field(default=None, repr=False)
