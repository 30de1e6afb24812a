"""Job documents for tests: read, refused and patched."""

from __future__ import annotations

from datetime import datetime

import pytest

from wakeful.document import (
    Defaults,
    patch_definition,
    read_definition,
)
from wakeful.errors import InvalidArgument
from wakeful.job.job import Definition
from wakeful.schedule.schedules import CronSchedule
from wakeful.values.json_value import Json


def ms(text: str) -> int:
    """Return epoch milliseconds of an ISO 8601 time."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = ms("2026-11-14T12:00:05Z")
NINE_IN_BERLIN = ms("2027-03-01T09:00+01:00")
DAILY = CronSchedule("0 0 * * *", "UTC")
WEBHOOK: dict[str, Json] = {"kind": "webhook", "url": "https://a.example/hook"}
WORKFLOW: dict[str, Json] = {"kind": "workflow", "workflowId": "invoices", "version": 3}
#: A document that sets most fields.
RICH = {
    "name": "digest",
    "schedule": "0 7 * * *",
    "tz": "Europe/Berlin",
    "exclude": ["holidays:DE"],
    "webhookUrl": "https://a.example/hook",
    "payload": {"to": "me"},
    "timeout": "30s",
    "overlapPolicy": "queue",
    "description": "every morning",
    "labels": {"team": "billing"},
}


def read(document=None, *, now=NOW, stored=False, old=None, defaults=None, **fields) -> Definition:
    """Return the definition of a document; a daily job named `job` by default."""
    content = {"name": "job", "schedule": "@daily", **fields} if document is None else document
    return read_definition(content, now_ms=now, defaults=defaults or Defaults(), stored=stored, old=old)


def error_of(document=None, **fields) -> str:
    """Return the message of the error that a document causes."""
    with pytest.raises(InvalidArgument) as caught:
        read(document, **fields)
    message = caught.value.message
    assert caught.value.code == "invalid-argument"
    assert len(message) < 5000
    message.encode()
    return message


def patched(old: Definition, now=NOW, defaults=None, **patch) -> Definition:
    """Return a definition after a patch."""
    return patch_definition(old, patch, now_ms=now, defaults=defaults or Defaults())
