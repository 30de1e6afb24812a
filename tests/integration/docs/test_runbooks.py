"""Every alert and every failure has a runbook, and each reference to one resolves."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields

import pytest
import yaml
from markdown.extensions.toc import slugify  # type: ignore[import-untyped]

from tests.support.doc_pages import DOCS, anchors, rows
from tests.support.paths import ROOT
from wakeful.cli.commands import doctor
from wakeful.model.reports import Check
from wakeful.service.admin import diagnosis

RUNBOOKS = DOCS / "operations/runbooks.md"
_LINK = re.compile(r"^\[(.+)\]\(runbooks\.md#([\w-]+)\)$")


def sections() -> dict[str, str]:
    """Return the text of each runbook by its heading."""
    parts = re.split(r"^### (.+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)
    return {
        name: text.partition("\n## ")[0].strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def alerts() -> dict[str, str]:
    """Return the `runbook_url` of each alert by its name."""
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]
    return {rule["alert"]: rule["annotations"]["runbook_url"] for rule in group["rules"]}


def diagnosed() -> set[str]:
    """Return the anchors that the checks of `wakeful doctor` name."""
    source = ast.parse(inspect.getsource(diagnosis))
    place = [field.name for field in fields(Check)].index("runbook")
    given: list[ast.expr] = []
    for call in ast.walk(source):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Check":
            given += call.args[place : place + 1]
            given += [keyword.value for keyword in call.keywords if keyword.arg == "runbook"]
    assert all(isinstance(value, ast.Constant) for value in given), "an anchor is not a constant"
    return {str(value.value) for value in given if isinstance(value, ast.Constant)} - {"None"}


def failures() -> list[list[str]]:
    """Return the rows of the page of failures."""
    return rows("operations/failures.md")


def test_the_anchors_are_those_of_the_built_page():
    assert {slugify(name, "-") for name in sections()} <= anchors(RUNBOOKS)


def test_every_alert_has_a_runbook_at_its_address():
    assert alerts()
    for name, address in alerts().items():
        assert name in sections(), f"there is no runbook for {name}"
        assert address == f"docs/operations/runbooks.md#{slugify(name, '-')}"
    assert [name for name in sections() if name.startswith("Wakeful")] == list(alerts()), "another order"


@pytest.mark.parametrize("row", failures(), ids=lambda row: row[0][:40])
def test_every_failure_links_to_its_runbook(row: list[str]):
    found = _LINK.match(row[2])
    assert found, f"no link: {row}"
    assert found[1] in sections(), f"there is no runbook '{found[1]}'"
    assert found[2] == slugify(found[1], "-")


def test_every_check_of_the_doctor_leads_to_a_runbook():
    assert len(diagnosed()) > 10
    assert diagnosed() <= {slugify(name, "-") for name in sections()}
    assert (ROOT / doctor.RUNBOOKS).samefile(RUNBOOKS)


def test_every_runbook_is_complete_short_and_linked():
    linked = {row[2].partition("]")[0][1:] for row in failures()} | set(alerts())
    for name, text in sections().items():
        assert name in linked, f"{name}: neither an alert nor a row of failures.md leads to it"
        for part in ("Symptom", "Meaning", "Do", "Escalate"):
            assert f"- **{part}:** " in text, f"{name} has no '{part}'"
        assert "```bash\n" in text, f"{name} has no commands"
        assert 6 <= len([line for line in text.split("\n") if line]) <= 22, f"{name} is too long or too short"
