"""Actors are shown by name in every resource that has one, also after a restart and after a revocation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp
from tests.support.api_client import JOBS, ApiClient, served
from tests.support.statements import recorded
from wakeful.model.codec import field_plans, model_classes
from wakeful.service.auth import actor_names

PULL = {"schedule": SELDOM, "target": {"kind": "pull"}}


@pytest.fixture(autouse=True)
def no_known_names() -> None:
    """Forget the names that this process knows, as a new process does."""
    actor_names._known.clear()


async def make_objects(ask: ApiClient, name: str) -> str:
    """Make a job with a change, a run and a trigger URL by a new key; return the id of the key."""
    made = (await ask("POST", "/keys", {"name": name, "role": "admin"})).body
    ada = ask.with_key(made["key"])
    for request in (
        ("POST", JOBS, {"name": "digest", **PULL}),
        ("PATCH", f"{JOBS}/digest", {"description": "daily"}),
        ("POST", f"{JOBS}/digest/run", {}),
        ("POST", f"{JOBS}/digest/hook", {}),
        ("POST", "/keys", {"name": "second", "role": "member"}),
    ):
        assert (await ada(*request)).status < 300
    return str(made["id"])


async def read_names(ask: ApiClient) -> dict[str, Any]:
    """Return the names in all resources."""
    run = (await ask("GET", "/runs")).body["runs"][0]
    keys = (await ask("GET", "/keys")).body["keys"]
    entries = (await ask("GET", "/audit")).body["entries"]
    revisions = (await ask("GET", f"{JOBS}/digest/revisions")).body["revisions"]
    return {
        "job": (await ask("GET", f"{JOBS}/digest")).body["createdByName"],
        "jobs": (await ask("GET", "/jobs")).body["jobs"][0]["createdByName"],
        "run": (await ask("GET", f"/runs/{run['id']}")).body["triggeredByName"],
        "runs": run["triggeredByName"],
        "hook": (await ask("GET", f"{JOBS}/digest/hook")).body["createdByName"],
        "revisions": {each["byName"] for each in revisions},
        "key": next(each["createdByName"] for each in keys if each["name"] == "second"),
        "audit": next(each["actorName"] for each in entries if each["action"] == "job.run"),
    }


async def test_a_process_that_never_saw_a_key_shows_its_name_after_it_was_revoked(new_app: NewApp) -> None:
    name = "Ada's \u202elaptop"
    async with new_app() as app, served(app) as ask:
        key_id = await make_objects(ask, name)
        admin = (await ask("POST", "/keys", {"name": "other", "role": "admin"})).body["key"]
        assert (await ask("DELETE", f"/keys/{key_id}")).status == 204
    actor_names._known.clear()
    async with new_app() as app, served(app) as ask:
        expected = dict.fromkeys(("job", "jobs", "run", "runs", "hook", "key", "audit"), name)
        assert await read_names(ask.with_key(admin)) == {**expected, "revisions": {name}}


async def test_names_of_a_page_take_one_statement_and_none_the_next_time(new_app: NewApp) -> None:
    async with new_app() as app, served(app) as ask:
        await make_objects(ask, "key 0")
        for number in range(1, 5):
            key = (await ask("POST", "/keys", {"name": f"key {number}", "role": "member"})).body["key"]
            assert (await ask.with_key(key)("POST", f"{JOBS}/digest/run", {})).status == 201
        await ask("GET", "/runs")
        actor_names._known.clear()
        for expected in (1, 0):
            with recorded(ask.app.store) as texts:
                runs = (await ask("GET", "/runs")).body["runs"]
            assert {run["triggeredByName"] for run in runs} == {f"key {number}" for number in range(5)}
            assert sum("SELECT id, name FROM keys" in text for text in texts) == expected


async def test_an_actor_that_no_database_has_is_looked_up_once(new_app: NewApp) -> None:
    async with new_app() as app:
        names = app.services.accounts.names
        with recorded(app.store) as texts:
            for _ in range(2):
                await names.load(["admin:key:gone", "key:gone", "python", "jwt:ada", None, "", "0197:x", ":"])
        assert sum("FROM keys" in text for text in texts) == 1
        assert actor_names.actor_name("key:gone") is None


def test_each_public_field_with_an_actor_has_its_name_beside_it() -> None:
    for kind in model_classes():
        plans = {each.name: each for each in field_plans(kind)}
        actors = [name for name in plans if name in ("by", "actor") or name.endswith("ed_by")]
        assert all(plans[f"{name}_name"].form.name_of == name for name in actors), kind
