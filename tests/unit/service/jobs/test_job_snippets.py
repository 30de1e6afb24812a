"""Texts of documents that are not valid yet: a form is written as text while it is filled in."""

from __future__ import annotations

from itertools import product

import pytest

from wakeful.document.definition import DEFINITION
from wakeful.service.jobs.job_snippets import snippets
from wakeful.values.json_value import Json

ODD: tuple[Json, ...] = (
    None, True, 0, -1, -(10**15), 10**15, 10**30, 1.5, "", "x", "a\x00\x1b\u202e'\n", [], [1, ["x"]], {},
    {"kind": "at", "atMs": 10**30}, {"kind": "every", "everyMs": -1},
    {"kind": "webhook", "url": 5}, {"a": {}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("zones", "names"),
    [
        ([None], (*DEFINITION, "enabled", "cron", "timeout", "webhookUrl", "workflowId", "another")),
        (["Nope/Zone", "../../etc/passwd", "a\x00b", 5, ["UTC"]], ("schedule", "startAt", "endAt")),
    ],
)
def test_any_document_is_written(zones: list[Json], names: tuple[str, ...]):
    for tz, name, value in product(zones, names, ODD):
        assert all(snippets({"tz": tz, name: value}, "default", "default", "http://a.example"))
