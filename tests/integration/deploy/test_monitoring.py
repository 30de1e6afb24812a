"""The alert rules and the dashboard in `deploy/`: valid, tested, and of metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from tests.support.command_line import serving
from tests.support.paths import ROOT
from tests.support.tools import run, tool

PROMETHEUS = ROOT / "deploy/prometheus"
RULES = PROMETHEUS / "rules.yml"
TESTS = PROMETHEUS / "rules.test.yml"
DASHBOARD = ROOT / "deploy/grafana/wakeful.json"
_METRIC = re.compile(r"\b(?:wakeful|process)_\w+")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    alerts: list[dict[str, Any]] = group["rules"]
    return alerts


def expressions() -> list[str]:
    """Return the expressions of all panels."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_every_alert_has_a_severity_a_text_and_a_runbook():
    for alert in rules():
        name, annotations = alert["alert"], alert["annotations"]
        assert alert["labels"]["severity"] in ("critical", "warning"), name
        assert annotations.keys() == {"summary", "description", "runbook_url"}, name
        assert annotations["runbook_url"] == f"docs/operations/runbooks.md#{name.lower()}"


def test_the_rules_pass_their_tests():
    promtool = tool("promtool")
    run(promtool, "check", "rules", str(RULES))
    run(promtool, "check", "config", str(PROMETHEUS / "prometheus.yml"))
    run(promtool, "test", "rules", str(TESTS))


def test_every_alert_has_a_case_that_fires_and_is_quiet_with_one_job_a_day():
    one_job, *others = yaml.safe_load(TESTS.read_text())["tests"]
    names = {alert["alert"] for alert in rules()}
    quiet = {case["alertname"] for case in one_job["alert_rule_test"] if not case.get("exp_alerts")}
    firing = {
        case["alertname"] for test in others for case in test["alert_rule_test"] if case.get("exp_alerts")
    }
    assert one_job["name"] == "one job a day"
    assert quiet == names
    assert firing == names
    series = " ".join(each["series"] for each in one_job["input_series"])
    used = {name for alert in rules() for name in _METRIC.findall(alert["expr"])}
    assert used <= set(_METRIC.findall(series)), "the quiet case must have a value for every metric"


def test_the_dashboard_has_unique_panels_that_do_not_overlap():
    dashboard = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & own, panel["title"]
        cells |= own
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?([a-z]\w+)", DASHBOARD.read_text())) == variables


def test_the_expressions_of_the_dashboard_are_valid(tmp_path: Path):
    promtool = tool("promtool")
    records = [
        {
            "record": f"panel:{number}",
            "expr": text.replace("$__rate_interval", "5m").replace("$job", "wakeful"),
        }
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": records}]}))
    run(promtool, "check", "rules", "--lint=none", str(file))


@pytest.mark.parametrize("file", [RULES, DASHBOARD], ids=lambda file: file.name)
def test_every_metric_that_is_used_exists(file: Path, tmp_path: Path):
    texts = expressions() if file == DASHBOARD else [alert["expr"] for alert in rules()]
    used = {name for text in texts for name in _METRIC.findall(text)}
    assert len(used) > 10
    with serving(tmp_path) as machine, urlopen(f"{machine.url}/metrics") as response:
        exposed = response.read().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposed, re.MULTILINE))
    histograms = [name for name, kind in kinds.items() if kind == "histogram"]
    known = {*kinds, *(f"{name}{part}" for name in histograms for part in ("_bucket", "_count", "_sum"))}
    assert used - known == set()
