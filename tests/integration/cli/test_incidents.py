"""`wakeful incidents`: list, show and acknowledge; and where else the command line shows incidents."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import serving, webhook_receiver


def test_incidents_are_listed_shown_acknowledged_and_recovered(tmp_path: Path):
    with serving(tmp_path) as machine, webhook_receiver() as receiver:
        assert machine.wakeful("incidents").out.strip() == "no open incidents"
        options = ("-s", "0 0 29 2 *", "--max-attempts", "1")
        machine.wakeful("add", "bad", *options, "--url", f"{receiver}/500")
        for _ in range(2):
            machine.wakeful("run", "bad", "--wait")

        (incident,) = machine.wakeful("incidents", "--json").json["incidents"]
        assert (incident["job"], incident["cause"], incident["failedRuns"]) == ("bad", "http 500", 2)
        listed = machine.wakeful("incidents", "--job", "bad", "--agent", "default")
        assert incident["id"] in listed.out
        assert "wakeful incidents ack INCIDENT" in listed.out + listed.err
        assert "http 500" in machine.wakeful("incidents", incident["id"]).out
        assert "1 open, 0 acknowledged" in machine.wakeful("status").out
        assert incident["id"] in machine.wakeful("show", "bad").out

        done = machine.wakeful("incidents", "ack", incident["id"], "--note", "we know", "--json")
        assert (done.code, done.json["state"], done.json["note"]) == (0, "acknowledged", "we know")
        again = machine.wakeful("incidents", "ack", incident["id"])
        assert again.code == 0
        assert "we know" in again.out
        assert machine.wakeful("incidents", "--state", "open", "--json").json["incidents"] == []

        machine.wakeful("add", "good", *options, "--url", f"{receiver}/hook")
        machine.wakeful("delete", "bad")
        machine.wakeful("run", "good", "--wait")
        closed = machine.wakeful("incidents", "--state", "all").out
        assert "closed" in closed
        late = machine.wakeful("incidents", incident["id"]).out
        assert "job deleted" in late

        for arguments, code, said in (
            (("ack",), 2, "give one incident"),
            (("a", "b"), 2, "give one incident"),
            (("--note", "x"), 2, "--note works with"),
            ((incident["id"], "--state", "open"), 2, "work for the list only"),
            (("--state", "broken"), 2, "state: 'broken' is not one of open, acknowledged"),
            (("01980000-0000-7000-8000-000000000000",), 3, "no incident"),
        ):
            refused = machine.wakeful("incidents", *arguments)
            assert (refused.code, said in refused.err) == (code, True), (arguments, refused)
