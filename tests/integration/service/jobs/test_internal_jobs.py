"""Internal jobs have reserved names and count towards no quota; time zones are limited by the allowlist."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.api_client import ApiClient, served
from tests.support.receiver import Receiver
from wakeful.errors import InvalidArgument
from wakeful.settings import Settings
from wakeful.store.internal_jobs import INTERNAL_JOBS
from wakeful.store.rows import JobChange

DOCUMENT = {"schedule": SELDOM}
JOBS = "/agents/ada/jobs"


@on_one_store
async def test_no_user_job_is_created_with_a_reserved_name_or_renamed_to_one(ask: ApiClient):
    assert (await ask("POST", JOBS, {"name": "mine", **DOCUMENT})).status == 201
    for name in sorted(INTERNAL_JOBS | {"wakeful-anything"}):
        tried = [
            await ask("POST", JOBS, {"name": name, **DOCUMENT}),
            await ask("PUT", f"{JOBS}/{name}", DOCUMENT),
            await ask("PATCH", f"{JOBS}/mine", {"name": name}),
        ]
        assert [(reply.status, reply.code) for reply in tried] == [(422, "invalid-argument")] * 3
        assert all(f"name: '{name}' is reserved" in reply.body["detail"] for reply in tried)
    with pytest.raises(InvalidArgument, match="reserved"):
        await ask.app.jobs.create_many([{"name": "heartbeat", **DOCUMENT}])
    assert [job["name"] for job in (await ask("GET", JOBS)).body["jobs"]] == ["mine"]


@on_one_store
async def test_an_internal_job_cannot_be_renamed_but_can_be_edited(ask: ApiClient):
    await ask("PUT", "/agents/ada", {"heartbeat": True})
    refused = await ask("PATCH", f"{JOBS}/heartbeat", {"name": "renamed"})
    assert (refused.status, refused.code) == (422, "invalid-argument")
    assert "it cannot be renamed" in refused.body["detail"]
    assert (await ask("PATCH", f"{JOBS}/heartbeat", {"maxAttempts": 3})).status == 200
    assert (await ask("PUT", "/agents/ada", {"heartbeat": True})).status == 200


@on_one_store
async def test_an_existing_user_job_with_a_reserved_name_may_keep_or_change_it(ask: ApiClient):
    await ask("POST", JOBS, {"name": "mine", **DOCUMENT})
    row = await ask.app.store.job("default", "ada", "mine")
    assert row is not None
    await ask.app.store.change_job(row.id, lambda old: JobChange(old._replace(name="heartbeat")))
    assert (await ask("PATCH", f"{JOBS}/heartbeat", {"description": "x"})).status == 200
    assert (await ask("PATCH", f"{JOBS}/heartbeat", {"name": "pulse"})).status == 200


async def test_internal_jobs_count_towards_no_quota(new_app: NewApp, receiver: Receiver):
    settings = Settings(quota_jobs_per_agent=2, quota_jobs_per_workspace=2, quota_create_per_agent=2)
    async with new_app(settings=settings) as app, served(app) as ask:
        document = {
            "target": {"kind": "webhook", "url": receiver.url},
            "heartbeat": True,
            "alerts": {"url": receiver.url},
        }
        assert (await ask("PUT", "/agents/ada", document)).status == 201
        assert (await ask("POST", "/agents/ada/runs")).status == 201
        for name in ("one", "two"):
            assert (await ask("POST", JOBS, {"name": name, **DOCUMENT})).status == 201
        refused = await ask("POST", JOBS, {"name": "three", **DOCUMENT})
        assert refused.code == "resource-exhausted"
        quotas = (await ask("GET", "/quotas")).body["quotas"]
        used = {(row["agent"], row["bucket"]): row["used"] for row in quotas}
        assert used["ada", "scheduler.liveJobs"] == used[None, "scheduler.liveJobs"] == 2
        assert used["ada", "scheduler.createJob"] == 2


# --- time zones ------------------------------------------------------------------------------------------


@on_one_store
async def test_agents_and_workspaces_accept_only_allowed_time_zones(new_app: NewApp):
    async with new_app(settings=Settings(tz_allowlist=("Europe/Berlin",))) as app, served(app) as ask:
        for path in ("/agents/ada", ""):
            refused = await ask("PUT", path, {"tz": "Asia/Tokyo"})
            assert (refused.status, refused.code) == (422, "invalid-argument")
            assert "tz: 'Asia/Tokyo' is not allowed here" in refused.body["detail"]
        inherited = await ask("POST", JOBS, {"name": "nine", "schedule": "0 9 * * *"})
        assert "'UTC', the zone of jobs that name none" in inherited.body["detail"]
        assert (await ask("PUT", "/agents/ada", {"tz": "Europe/Berlin"})).status == 201
        assert (await ask("POST", JOBS, {"name": "nine", "schedule": "0 9 * * *"})).status == 201


@pytest.mark.parametrize("name", ["DEFAULT_TZ", "TZ_ALLOWLIST"])
def test_an_unknown_time_zone_in_the_settings_prevents_the_start(name: str, monkeypatch: pytest.MonkeyPatch):
    from wakeful import Wakeful

    monkeypatch.setenv(f"WAKEFUL_{name}", "Mars/Base")
    with pytest.raises(InvalidArgument, match=f"^WAKEFUL_{name}: unknown time zone 'Mars/Base'"):
        Wakeful("sqlite://", secret_key="k")


def test_a_default_time_zone_that_is_not_allowed_prevents_the_start(monkeypatch: pytest.MonkeyPatch):
    from wakeful import Wakeful

    monkeypatch.setenv("WAKEFUL_DEFAULT_TZ", "Asia/Tokyo")
    monkeypatch.setenv("WAKEFUL_TZ_ALLOWLIST", "Europe/Berlin,UTC")
    with pytest.raises(InvalidArgument, match="DEFAULT_TZ: 'Asia/Tokyo' is not in WAKEFUL_TZ_ALLOW"):
        Wakeful("sqlite://", secret_key="k")
    monkeypatch.setenv("WAKEFUL_TZ_ALLOWLIST", "Europe/Berlin,Asia/Tokyo")
    Wakeful("sqlite://", secret_key="k")
