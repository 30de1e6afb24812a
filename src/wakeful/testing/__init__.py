"""Tests of programs that use Wakeful: a database of their own, and a clock that the test moves.

```python
from myagents import app, send_mail
from wakeful.testing import Harness


async def test_a_reminder_is_sent_after_a_day():
    async with Harness(app, at="2030-01-01T09:00:00Z") as harness:
        await app.enqueue(send_mail, to="team@example.com", in_="1d")
        await harness.assert_enqueued(send_mail, in_="1d", to="team@example.com")
        await harness.advance("1d")
        assert sent == ["team@example.com"]
```

Here are the harness, servers that tests send requests to (`receivers`), and the fixtures of pytest. pytest
imports this package at each start, so its names are imported on first use.
"""

from typing import TYPE_CHECKING

from wakeful.values.package import lazy_names

if TYPE_CHECKING:
    from wakeful.testing.clock import MovableClock
    from wakeful.testing.harness import Harness, HarnessFactory, SyncHarness
    from wakeful.testing.receivers import ChatEndpoint, ReceivedRequest, WebhookReceiver

__all__ = [
    "ChatEndpoint",
    "Harness",
    "HarnessFactory",
    "MovableClock",
    "ReceivedRequest",
    "SyncHarness",
    "WebhookReceiver",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "wakeful.testing.clock": ["MovableClock"],
            "wakeful.testing.harness": ["Harness", "HarnessFactory", "SyncHarness"],
            "wakeful.testing.receivers": ["ChatEndpoint", "ReceivedRequest", "WebhookReceiver"],
        },
    )
