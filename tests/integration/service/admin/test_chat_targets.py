"""What `wakeful doctor` says about chat targets."""

from __future__ import annotations

from typing import Any

from tests.integration.conftest import SELDOM, NewApp
from wakeful import Chat, Wakeful
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.settings import Settings

KEYS = Settings(
    chat_keys={"one": "sk-0123456789", "two": "sk-9876543210"}, chat_hosts={"one": ("a.example",)}
)


async def check(app: Wakeful, principal: Principal = LOCAL) -> dict[str, Any]:
    report: Any = await app.services.admin.doctor.examine(principal, "default")
    (found,) = [each for each in report["checks"] if each["name"] == "chat"]
    return dict(found)


async def test_a_key_that_was_removed_is_found_in_jobs_and_agents(new_app: NewApp):
    async with new_app(settings=KEYS) as app:
        assert (await check(app))["message"] == "jobs may send these API keys to any host: two"
        admin = Principal("key:1", "admin", "default")
        assert (await check(app, admin))["message"] == "no chat targets", "only the operator binds keys"
        two = Chat("https://b.example/v1", "m", key="two")
        await app.agents.put("helper", {"target": two})
        await app.jobs.create("digest", schedule=SELDOM, target=two)
        await app.jobs.create("other", schedule=SELDOM, target=Chat("https://a.example", "m", key="one"))
        await app.jobs.create("paused", schedule=SELDOM, target=two, enabled=False)
        assert (await check(app, admin))["message"] == "3 chat targets"
    async with new_app(
        settings=Settings(chat_keys={"one": "sk-0123456789"}, chat_hosts=KEYS.chat_hosts)
    ) as app:
        found = await check(app)
    assert found["state"] == "error"
    assert found["message"] == (
        "2 chat targets cannot be launched: agent helper (there is no key 'two'; the operator sets it as "
        "WAKEFUL_CHAT_KEY_TWO), default/digest (there is no key 'two'; the operator sets it as "
        "WAKEFUL_CHAT_KEY_TWO)"
    )
