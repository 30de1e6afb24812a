"""Jobs and settings for tests of chat targets."""

from __future__ import annotations

from typing import Any

from tests.support.chat_endpoint import KEY, ChatStandIn
from tests.support.waiting import over
from wakeful import Chat, Wakeful
from wakeful.model import Run
from wakeful.settings import Settings
from wakeful.settings.chat import ChatModel

#: A leap day: the jobs run only manually.
SELDOM = "0 0 29 2 *"
MODEL = "gpt-test"
#: 1 USD per million input tokens, 10 USD per million output tokens
PRICED = {MODEL: ChatModel(input=1, output=10, context_window=8_000)}
QUICK_RETRY = {"baseMs": 1, "maxMs": 1}


def settings(**given: Any) -> Settings:
    return Settings(
        **{"chat_keys": {"test": KEY}, "chat_models": PRICED, "allow_private_targets": True, **given}
    )


async def add(app: Wakeful, endpoint: ChatStandIn, name: str = "digest", **fields: Any) -> None:
    target = Chat(endpoint.url, MODEL, **{"key": "test", **fields.pop("chat", {})})
    fields = {"message": "What is new?", "backoff": QUICK_RETRY, **fields}
    await app.jobs.create(name, schedule=SELDOM, target=target, **fields)


def used(of: Run) -> dict[str, Any]:
    assert isinstance(of.usage, dict)
    return of.usage


async def run(app: Wakeful, name: str = "digest", **given: Any) -> Run:
    return await over(app, (await app.jobs.run(name, **given)).id)
