"""`wakeful doctor` against real servers and databases."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.support.command_line import Machine, serving, webhook_receiver
from tests.support.postgres_server import PrivateServer
from tests.support.waiting import PATIENCE


def _states(report: Any) -> dict[str, str]:
    return {check["name"]: check["state"] for check in report["checks"]}


def test_a_healthy_server_has_no_problem(tmp_path: Path):
    with serving(tmp_path) as machine:
        report = machine.wakeful("doctor", "--json")
        assert report.code == 0, report
        assert report.json["state"] == "ok"
        assert {
            "server", "client clock", "database", "schema", "clock", "engine", "replicas", "lanes",
            "due runs", "functions", "executors", "leases", "dead letters", "chains", "incidents", "channels",
            "chat", "disk", "events", "settings",
        } == set(_states(report.json))  # fmt: skip
        shown = machine.wakeful("doctor")
        assert shown.code == 0
        assert "20 checks, 0 errors, 0 warnings" in shown.out


def test_dead_letters_are_a_warning_that_says_what_to_do(tmp_path: Path):
    with serving(tmp_path) as machine, webhook_receiver() as receiver:
        machine.wakeful("add", "bad", "-s", "0 0 29 2 *", "--max-attempts", "1", "--url", f"{receiver}/500")
        machine.wakeful("run", "bad", "--wait")
        shown = machine.wakeful("doctor")
        assert shown.code == 0
        assert "1 dead letter" in shown.out
        assert "`wakeful dead-letters`" in shown.out
        assert "runbooks.md#wakefuldeadletters" in shown.out
        assert machine.wakeful("doctor", "--strict").code == 1
        states = _states(machine.wakeful("doctor", "--json").json)
        assert (states["dead letters"], states["incidents"]) == ("warning", "warning")


def test_the_admin_of_a_workspace_sees_no_checks_of_the_installation(tmp_path: Path):
    with serving(tmp_path) as machine:
        created = machine.wakeful("keys", "create", "boss", "--role", "admin", "--json").json
        of_workspace = machine.wakeful("doctor", "--json", WAKEFUL_KEY=created["key"])
        assert set(_states(of_workspace.json)) == {
            "server", "client clock", "leases", "dead letters", "chains", "channels", "chat", "events",
            "incidents",
        }  # fmt: skip
        member = machine.wakeful("keys", "create", "reader", "--role", "member", "--json").json
        refused = machine.wakeful("doctor", "--json", WAKEFUL_KEY=member["key"])
        assert (refused.code, _states(refused.json)["server"]) == (1, "error")
        assert "use the key of an admin" in refused.out


def test_without_a_server_the_database_is_checked_and_not_changed(tmp_path: Path):
    with serving(tmp_path) as machine:
        wrong = machine.wakeful("doctor", "--json", WAKEFUL_KEY="wk_wrong")
        assert (wrong.code, _states(wrong.json)["server"]) == (1, "error")
    file = tmp_path / "a.db"
    down = machine.wakeful("doctor", "--json", "--db", str(file))
    assert (down.code, _states(down.json)) == (
        1, {"server": "error", "database": "ok", "schema": "ok", "clock": "ok", "disk": "ok"},
    )  # fmt: skip

    with sqlite3.connect(file) as db:
        newest = db.execute("SELECT max(version) FROM schema_version").fetchone()[0]
        db.execute("DELETE FROM schema_version WHERE version = ?", (newest,))
    db.close()
    old = machine.wakeful("doctor", "--json", WAKEFUL_DB=f"sqlite:///{file}")
    assert (old.code, _states(old.json)["schema"]) == (1, "error")
    assert "wakeful migrate" in old.out
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT max(version) FROM schema_version").fetchone()[0] == newest - 1
    db.close()

    nothing = machine.wakeful("doctor", "--db", str(tmp_path / "none.db"))
    assert nothing.code == 7
    assert "there is no database file" in nothing.out


def test_a_server_whose_postgresql_is_down_names_the_reason(tmp_path: Path):
    database = PrivateServer()
    try:
        with serving(tmp_path, "--db", database.url) as machine:
            healthy = machine.wakeful("doctor", "--json")
            assert (healthy.code, _states(healthy.json)["database"]) == (0, "ok"), healthy
            assert _states(healthy.json)["disk"] == "unknown"
            direct = Machine(tmp_path, "http://127.0.0.1:9").wakeful("doctor", "--json", "--db", database.url)
            assert (direct.code, _states(direct.json)["schema"]) == (1, "ok")

            database.stop()
            broken = machine.wakeful("doctor", "--json")
            states = _states(broken.json)
            # 7: the server could not check the key, because it has forgotten the last check by now.
            assert broken.code == (7 if states["server"] == "error" else 1), broken
            assert "error" in (states.get("database"), states["server"]), broken
            assert "cannot use the database" in broken.out
            if "dead letters" in states:
                assert states["dead letters"] == "unknown"

            database.start()
            deadline = time.monotonic() + PATIENCE
            while machine.wakeful("doctor", "--json").code != 0:
                assert time.monotonic() < deadline
    finally:
        database.close()
