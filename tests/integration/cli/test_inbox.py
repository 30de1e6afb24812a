"""`wakeful inbox`: list, approve, reject."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.command_line import Machine, serving

CONFIRMED = ("--message", "Issue 12", "--set", 'verify={"kind":"manual"}', "--max-attempts", "1")


def _items(machine: Machine, count: int) -> list[dict[str, str]]:
    """Wait until so many items wait, and return them."""
    while True:
        items: list[dict[str, str]] = machine.wakeful("inbox", "--json").json["items"]
        if len(items) == count:
            return items
        time.sleep(0.1)


def test_items_are_listed_approved_and_rejected(tmp_path: Path) -> None:
    with serving(tmp_path) as machine:
        assert machine.wakeful("inbox").out.strip() == "nothing waits for a person"
        for name in "abc":
            machine.wakeful("add", name, "-s", "@yearly", "--target", '{"kind": "echo"}', *CONFIRMED)
            machine.wakeful("run", name)
        items = _items(machine, 3)
        assert [item["detail"] for item in items] == ["Issue 12"] * 3
        shown = machine.wakeful("inbox", "--kind", "verification")
        assert "Confirm the work of job" in shown.out
        assert "wakeful inbox approve ITEM" in shown.out + shown.err
        assert (
            machine.wakeful("inbox", "--kind", "approval,incident").out.strip()
            == "nothing waits for a person"
        )
        assert f"{items[0]['id']}@1 " in shown.out
        run_id = items[0]["id"].partition(":")[2]
        states = machine.wakeful("runs", "--state", "verifying", "--json").json["runs"]
        assert run_id in {run["id"] for run in states}

        assert "verifying" in machine.wakeful("runs").out
        first, second, third = (f"{item['id']}@{item['version']}" for item in items)
        approved = machine.wakeful("inbox", "approve", first, "--json")
        assert (approved.code, approved.json["state"]) == (0, "succeeded")
        rejected = machine.wakeful("inbox", "reject", second, "--reason", "no total")
        assert (rejected.code, "is failed" in rejected.out) == (0, True)
        changed = machine.wakeful("inbox", "approve", third.replace("@1", "@2"))
        assert (changed.code, "attempt" in changed.err) == (5, True), changed
        some = machine.wakeful("inbox", "approve", first, third, "--json")
        assert (some.code, [each["id"] for each in some.json["decisions"]]) == (5, [third.partition("@")[0]])
        assert first in some.err
        for arguments, code, said in (
            (("approve",), 2, "write `wakeful inbox`"),
            (("decide", first), 2, "write `wakeful inbox`"),
            (("--reason", "x"), 2, "--reason works with"),
            (("--kind", "tasks"), 2, "kind: 'tasks' is not one of verification"),
            (("approve", first), 5, "does not wait to be verified"),
            (("approve", f"{first}x"), 2, "copy the item from"),
            (("approve", items[0]["id"]), 5, "does not wait to be verified"),
            (("approve", "nothing"), 3, "list the inbox"),
            (("reject", "incident:01980000-0000-7000-8000-000000000000"), 2, "it cannot be rejected"),
        ):
            refused = machine.wakeful("inbox", *arguments)
            assert (refused.code, said in refused.err) == (code, True), (arguments, refused)
