"""The tables of the reference are complete and have no extra entries."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from typer.main import get_command

import wakeful
from tests.integration.conftest import NewApp, on_one_store
from tests.integration.service.auth.test_permissions import TABLE
from tests.support.api_client import HOME, ApiClient
from tests.support.doc_pages import DOCS, code, commands, pages, rows
from tests.support.paths import ROOT
from wakeful import client, errors
from wakeful.api.http.problems import STATUS
from wakeful.api.rpc.connection import _OWN
from wakeful.api.rpc.cron import METHODS
from wakeful.app import Jobs, Runs, Wakeful
from wakeful.cli import exit_codes
from wakeful.cli.main import app as command_line
from wakeful.document import Defaults, read_definition, write_definition
from wakeful.document.target import TARGET_FIELDS
from wakeful.engine.exposition import new_registry
from wakeful.job.target_kinds import TARGET_KINDS
from wakeful.run.run import RunState
from wakeful.server.http_app import create_app
from wakeful.service.cron_tool.normalize_arguments import ACTIONS
from wakeful.service.event_stream import RESET, TYPES
from wakeful.settings import PREFIX, Settings

_COMMON = {"--workspace", "--agent", "--server", "--cert", "--key", "--ca", "--json"}
#: The placeholders of paths in the tables, and how the tables name the roles.
_PARTS = {
    "/agents/writer": "/agents/{agent}",
    "/jobs/digest": "/jobs/{name}",
    "/instances/eu": "/instances/{instance}",
    "/sessions/main": "/sessions/{session}",
    "/runs/{run}": "/runs/{run_id}",
    "/keys/{key}": "/keys/{key_id}",
    "/people/{person}": "/people/{person_id}",
    "/sessions/{web_session}": "/sessions/{session_id}",
    "/incidents/{incident}": "/incidents/{incident_id}",
    "/inbox/incident:{incident}": "/inbox/{item_id}",
    "/inbox/verification:{run}": "/inbox/{item_id}",
    "/suggestions/{suggestion}": "/suggestions/{suggestion_id}",
    "/invoices/1": "/{workflow_id}/{version}",
    "/channels/log": "/channels/{channel}",
    "/subscriptions/{subscription}": "/subscriptions/{subscription_id}",
}
_WHO: dict[tuple[bool, ...], str] = {
    (True, True, True, True): "all",
    (True, True, False, True): "admin, agent",
    (True, True, True, False): "admin, member",
    (True, True, False, False): "admin",
    (False, True, False, False): "a key for all workspaces",
}


# --- HTTP -----------------------------------------------------------------------------------------


@on_one_store
async def test_the_table_has_exactly_the_paths_of_the_api(new_app: NewApp):
    actual = set(_paths(create_app(new_app().services)))

    documented = {_whole(code(cells[0])) for cells in rows("reference/http.md") if " /" in code(cells[0])}

    assert documented == actual


@on_one_store
async def test_every_path_has_an_example(new_app: NewApp):
    examples = (DOCS / "reference/http.md").read_text()
    for call in _paths(create_app(new_app().services)):
        method, path = call.split(" ")
        short = path.removeprefix("/api/workspaces/{workspace}") if "{workspace}/" in path else path
        wanted = re.sub(r"\\\{\w+\\\}", r'[^/\\s"\']+', re.escape(short))
        pattern = rf"""(?:api {method} ["']?|WAKEFUL_URL(?:/api/workspaces/default)?){wanted}["'?\s]"""
        assert re.search(pattern, examples), f"there is no example of {call}"


def test_the_documented_roles_match_the_permissions():
    documented = {
        _whole(code(cells[0])): cells[1] for cells in rows("reference/http.md") if " /" in code(cells[0])
    }
    checked = 0
    for row in TABLE:
        path = row.path.replace(HOME, "/api/workspaces/{workspace}", 1).partition("?")[0]
        for name, part in _PARTS.items():
            path = path.replace(name, part)
        who = _WHO[tuple(answer == "ok" for answer in row.answers[:4])]
        assert documented[f"{row.method} {path}"] == who, f"{row.method} {path}"
        checked += 1
    assert checked > 40


async def test_every_error_is_in_the_table():
    documented = {code(cells[0]): int(cells[1]) for cells in rows("reference/http.md", "Errors")}

    assert documented == {**STATUS, "internal": 500}


def _paths(app: FastAPI) -> Iterator[str]:
    for path, verbs in app.openapi()["paths"].items():
        for verb in verbs:
            yield f"{verb.upper()} {path}"


def _whole(call: str) -> str:
    method, path = call.split(" ")
    alone = path.startswith(("/api/", "/hooks/")) or path in ("/healthz", "/readyz", "/metrics")
    return call if alone else f"{method} /api/workspaces/{{workspace}}{path}"


# --- the command line -----------------------------------------------------------------------------


def test_every_command_has_a_section_with_all_its_options():
    text = (DOCS / "reference/cli.md").read_text()
    documented = dict(re.findall(r"^### wakeful (.+?)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    # A section that commands link to has the options that they share.
    shared = dict(re.findall(r"^## (.+?)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    linked = {f"(#{name.lower().replace(' ', '-')})": _options(section) for name, section in shared.items()}
    actual = _all_commands()

    assert documented.keys() == actual.keys()
    common = _options(shared["Common options"])
    assert common >= _COMMON
    for name, options in actual.items():
        groups = (each for link, each in linked.items() if link in documented[name])
        named = _options(documented[name]).union(*groups)
        assert named - common == options - common, f"wakeful {name}"


def test_the_reference_of_commands_repeats_no_table():
    text = (DOCS / "reference/cli.md").read_text()
    rows_of_options = Counter(re.findall(r"^\| `--.+", text, re.MULTILINE))

    assert [row for row, count in rows_of_options.items() if count > 4] == []


def _options(section: str) -> set[str]:
    cells = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`(--[\w-]+)`", cell)}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists_with_its_options(page: Path):
    known = _all_commands()
    groups = {name.split(" ")[0] for name in known if " " in name}
    for command in commands(page):
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "''", command).split()[1:]
        name = " ".join(words[: 2 if words[0] in groups else 1])
        if name in groups or re.match(r"[-…A-Z]", words[0]):
            continue  # all commands of a group, an option of all commands, or a placeholder
        if words[0] in groups and name not in known and f"{words[0]} list" in known:
            name = f"{words[0]} list"  # it may be left out
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        assert name in known, f"{page.name}: there is no command '{name}': {command}"
        assert options <= known[name] | _COMMON | {"--help"}, f"{page.name}: {command}"


def test_every_exit_code_is_in_the_table():
    documented = {int(code(cells[0])) for cells in rows("reference/cli.md", "Exit codes")}
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    codes = {exit_codes.exit_code(kind("…")) for kind in kinds if issubclass(kind, errors.WakefulError)}

    assert documented == {exit_codes.OK, exit_codes.INTERRUPTED, *codes}


@cache
def _all_commands() -> dict[str, set[str]]:
    return dict(_commands(get_command(command_line)))


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    if hasattr(command, "commands"):
        for each, inner in command.commands.items():
            yield from _commands(inner, f"{name} {each}".strip())
        return
    words = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
    yield name, {word for word in words if word.startswith("--") and word != "--help"}


# --- settings, jobs, runs -------------------------------------------------------------------------


def test_every_setting_is_in_the_table_with_its_default():
    documented = {code(cells[0]): code(cells[1]) for cells in rows("reference/settings.md", "Settings")}
    of_clients = {code(cells[0]) for cells in rows("reference/settings.md", "Client and command line")}
    collected = {
        "lanes": "LANE_…",
        "channels": "CHANNEL_…",
        "chat_keys": "CHAT_KEY_…",
        "chat_hosts": "CHAT_HOSTS_…",
        "chat_models": "CHAT_MODELS",
        "event_servers": "EVENT_SERVER_…",
        "oidc_groups": "OIDC_GROUPS",
    }
    actual = {}
    for field in fields(Settings):
        if field.name not in collected:
            default = "" if field.default in (None, ()) else _spelled(field.default)
            actual[PREFIX + field.name.upper()] = default
        else:
            assert field.default is MISSING
            actual[PREFIX + collected[field.name]] = ""

    assert {name: value for name, value in documented.items() if name not in of_clients} == actual


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_field_of_a_job_is_in_the_tables_with_its_default():
    document = {"name": "a", "schedule": "@daily", "workflowId": "w", "version": 1}
    written = write_definition(read_definition(document, now_ms=0, defaults=Defaults()))
    documented: dict[str, str] = {}
    for section in ("Schedule", "Target and payload", "Policies", "Delivery"):
        for cells in rows("reference/job.md", section):
            documented |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[1])

    assert documented.keys() == {*written, *TARGET_FIELDS, "enabled", "agentId"}
    shown = {name: code(cell) for name, cell in documented.items() if cell.startswith("`")}
    assert shown.keys() >= written.keys() - {"name", "schedule", "tz", "workflowId", "version", "userId"}
    assert {name: json.loads(text) for name, text in shown.items() if name not in ("enabled", "target")} == {
        name: written[name] for name in shown if name not in ("enabled", "target")
    }


@on_one_store
async def test_all_fields_of_jobs_and_runs_are_in_the_tables(ask: ApiClient):
    await ask("PUT", "/agents/default/jobs/a", {"schedule": "@daily"})
    job = (await ask("GET", "/agents/default/jobs/a")).body
    run = (await ask("POST", "/agents/default/jobs/a/run")).body
    run = (await ask("GET", f"/runs/{run['id']}")).body
    document = write_definition(read_definition(_plain(job), now_ms=0, defaults=Defaults(), stored=True))

    beside = _names("reference/job.md", "Response fields of a job")
    assert beside == (job.keys() - document.keys()) | {
        "secret",
        "warnings",
        "scheduleOrigin",
        "scheduleId",
    }
    assert _names("reference/job.md", "Fields of a run") == set(run)


def test_every_state_of_a_run_is_explained():
    assert _names("concepts/terms.md", "The life of a run") == {state.value for state in RunState}


def _names(page: str, section: str) -> set[str]:
    return {name for cells in rows(page, section) for name in re.findall(r"`(\w+)`", cells[0])}


def _plain(job: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if key != "secret"}


# --- events, metrics, Python ----------------------------------------------------------------------


def test_every_event_is_in_the_table():
    documented = {
        code(cells[0]) for cells in rows("reference/events.md") if "." in cells[0] or RESET in cells[0]
    }

    assert documented == {*TYPES, RESET}


def test_every_method_of_the_rpc_is_in_the_table():
    documented = {code(cells[0]) for cells in rows("reference/rpc.md", "Messages")}

    assert documented == {*METHODS, *_OWN}


def test_every_action_of_the_agents_tool_is_in_the_table():
    documented = {code(cells[0]) for cells in rows("how-to/mcp.md")}

    assert {word for word in documented if word.isalpha()} == set(ACTIONS)


@on_one_store
async def test_every_metric_is_in_the_table_with_its_kind(new_app: NewApp):
    async with new_app() as app:
        await app.services.metrics.refresh(app.store)
        actual = {
            f"{metric.name}_total" if metric.type == "counter" else metric.name: metric.type
            for metric in new_registry(app.services.metrics).collect()
            if not metric.name.startswith("process_")
        }

    assert {code(cells[0]): cells[1] for cells in rows("reference/metrics.md")} == actual


def test_every_alert_is_in_the_table_with_its_severity():
    documented = {code(cells[0]): cells[1] for cells in rows("operations/watch.md", "Alerts")}
    (group,) = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]

    assert documented == {rule["alert"]: rule["labels"]["severity"] for rule in group["rules"]}


def test_every_name_of_the_package_is_in_the_table():
    documented = {
        name
        for cells in rows("reference/python.md", "What `wakeful` has")
        for name in re.findall(r"`(\w+)`", cells[0])
    }

    assert documented == set(wakeful.__all__)


@pytest.mark.parametrize(
    "kind", [wakeful.JobsApi, wakeful.RunsApi, wakeful.AgentsApi, wakeful.IncidentsApi, wakeful.InboxApi]
)
def test_every_method_is_in_the_table(kind: type):
    tables = rows("reference/python.md", "Jobs, runs and agents")
    documented = {name for cells in tables for name in re.findall(r"`(\w+)\(", cells[0])}

    assert set(_public(kind)) <= documented


def test_all_attributes_of_wakeful_and_the_clients_are_documented():
    text = (DOCS / "reference/python.md").read_text()
    for name in _public(Wakeful):
        assert f"app.{name}" in text
    for name in _public(client.AsyncClient):
        assert name in ("close", "url", "has_key") or f"client.{name}" in text
    for kind in (Jobs, Runs):
        for name in _public(kind):
            assert f"`{name}(" in text


def test_every_attribute_of_agent_classes_and_contexts_is_in_the_table():
    text = (DOCS / "reference/python.md").read_text()
    cells = [row[0] for row in rows("reference/python.md", "Agent classes")]
    names = {name for cell in cells for name in re.findall(r"`(?:ctx\.)?(\w+)", cell)}

    assert {*_public(wakeful.Agent), "name"} <= names
    assert {*_public(wakeful.Context), *_public(wakeful.Context.__base__ or object)} <= names
    for directive in ("SetState", "Emit", "Delay", "CancelDelay", "SetCron", "CancelCron", "Stop"):
        assert directive in names
    for row in rows("reference/python.md", "Agent classes"):
        name = row[0].strip("`")
        if len(row) > 2 and row[1].startswith("`"):
            assert ast.literal_eval(row[1].strip("`")) == getattr(wakeful.Agent, name)
    assert "at most 64 KB" in text
    assert "At most 256 KB" in text


def _public(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


@pytest.mark.parametrize("page", ["index.md", "concepts/terms.md", "reference/job.md"])
def test_lists_of_targets_name_each_kind(page: str):
    (line,) = (
        line
        for line in (DOCS / page).read_text().splitlines()
        if line.startswith(("- Targets:", ":   Where a run goes:", "| `target` | `null` | Where its runs go"))
    )
    links = {"agent": "agents.md" if "agents.md" in line else "agent-classes"}
    missing = [
        kind for kind in TARGET_KINDS if f"/{kind}.md" not in line and links.get(kind, "?") not in line
    ]
    assert missing == []
