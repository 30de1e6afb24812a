"""Stand-ins for messaging services: they refuse what the services refuse, with the same status."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.support.receiver import Receiver, serving

#: An Apprise URL of each service. Tests replace the address of the service.
URLS = {
    "telegram": "tgram://123456789:abcdefghijklmnopqrstuvwxyzabcdefghi/987654321",
    "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?blocks=yes",
}
_ADDRESSES = {
    "telegram": ("apprise.plugins.telegram.NotifyTelegram.notify_url", "/bot"),
    "discord": ("apprise.plugins.discord.NotifyDiscord.notify_url", "/api/webhooks"),
    "slack": ("apprise.plugins.slack.NotifySlack.webhook_url", "/services"),
}
#: The most characters of a message; of Slack, in the text of one block.
_LIMITS = {"telegram": 4_096, "discord": 2_000, "slack": 3_000}


class MessageService:
    """The texts that a service accepted, and what it refused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts: list[str] = []
        self.refused: list[int] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Accept or refuse one message."""
        text = self._text(json.loads(await request.read()))
        size = len(text.encode("utf-16-le")) // 2
        if not text.strip() or size > _LIMITS[self.name]:
            self.refused.append(size)
            return web.json_response({"ok": False, "description": "message is too long"}, status=400)
        self.texts.append(text)
        return web.Response(text="ok") if self.name == "slack" else web.json_response({"ok": True})

    def _text(self, message: dict[str, object]) -> str:
        if self.name == "slack":
            attachments = message["attachments"]
            assert isinstance(attachments, list)
            return str(attachments[0]["blocks"][0]["text"]["text"])
        return str(message["text" if self.name == "telegram" else "content"])


@asynccontextmanager
async def serving_messages(monkeypatch: pytest.MonkeyPatch, name: str) -> AsyncIterator[MessageService]:
    """Run a service at which the URLs of Apprise point until the end of the block."""
    receiver, service = Receiver(), MessageService(name)
    receiver.answer = service
    async with serving(receiver):
        attribute, path = _ADDRESSES[name]
        monkeypatch.setattr(attribute, f"http://127.0.0.1:{receiver.port}{path}")
        yield service
