"""`wakeful verify`: confirm and reject the work of a run; and how the command line shows it."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import serving

WAITS = ("--schedule", "0 0 29 2 *", "--max-attempts", "1", "--set", 'verify={"kind": "manual"}')


def test_a_run_is_confirmed_or_rejected(tmp_path: Path):
    with serving(tmp_path) as machine:
        ids = []
        for name in ("good", "bad"):
            machine.wakeful("add", name, *WAITS, "--target", '{"kind": "echo"}')
            run_id = machine.wakeful("run", name, "--json").json["id"]
            while not machine.wakeful("runs", run_id, "--json").json["verifying"]:
                pass
            ids.append(run_id)
        good, bad = ids
        page = machine.wakeful("runs", good).out
        assert "not verified yet" in page
        assert f"wakeful verify {good}" in " ".join(page.split())
        assert "not verified yet" in machine.wakeful("runs").out

        listed = machine.wakeful("runs", "--to-confirm", "--json").json["runs"]
        assert [run["id"] for run in listed] == [bad, good]

        assert machine.wakeful("verify", good, "--reason", "x").code == 2
        assert machine.wakeful("verify", good, "--attempt", "2").code == 5
        done = machine.wakeful("verify", good, "--attempt", "1")
        assert (done.code, f"{good} is succeeded" in done.out) == (0, True)
        rejected = machine.wakeful("verify", bad, "--reject", "--reason", "the date is wrong", "--json")
        assert (rejected.json["state"], rejected.json["reason"]) == ("failed", "unverified")
        assert rejected.json["error"] == "not verified: the date is wrong"
        assert machine.wakeful("runs", "--to-confirm", "--json").json["runs"] == []
        again = machine.wakeful("verify", bad)
        assert again.code != 0
        assert "does not wait to be verified" in again.err
