"""All pages of the dashboard, and a workspace in which each of them has something to show."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from tests.support.api_client import ApiClient, Reply
from tests.support.waiting import eventually

#: A leap day: a schedule for jobs that run only manually.
_SELDOM: Final = "0 0 29 2 *"
#: Text that breaks a page if it is not escaped.
HOSTILE: Final = (
    """</script><script>window.hacked=1</script><img src=x onerror="window.hacked=1">'"`{{7*7}}&lt;"""
)
#: Pages that show something in every workspace.
PLAIN: Final = (
    "",
    "inbox",
    "jobs",
    "jobs/new",
    "runs",
    "calendar",
    "agents",
    "new-agent",
    "dead-letters",
    "dead-letters?view=runs",
    "incidents",
    "suggestions",
    "cost",
    "audit",
    "keys",
    "quotas",
    "channels",
    "subscriptions",
    "workers",
    "workspace",
    "settings",
)


class World(NamedTuple):
    """What the sample workspace contains."""

    agent: str
    job: str
    failing_job: str
    run: str
    failed_run: str
    session: str
    incident: str

    @property
    def pages(self) -> tuple[str, ...]:
        """The paths of all pages, below the workspace."""
        return (
            *PLAIN,
            f"agents/{self.agent}",
            f"agents/{self.agent}/edit",
            f"agents/{self.agent}/instances",
            f"agents/{self.agent}/jobs/{self.job}",
            f"agents/{self.agent}/jobs/{self.failing_job}",
            f"agents/{self.agent}/jobs/{self.job}/edit",
            f"agents/{self.agent}/sessions/{quote(self.session, safe='')}",
            f"runs/{self.run}",
            f"runs/{self.failed_run}",
            f"incidents/{self.incident}",
        )


async def fill(ask: ApiClient, text: str = "hello") -> World:
    """Fill the workspace `default`; `text` is the text of everything that takes any text.

    The app has the functions `nothing` and `failing`.
    """

    async def sent(method: str, path: str, body: object = None) -> Reply:
        reply = await ask(method, path, body)
        assert reply.status < 300, reply
        return reply

    await sent(
        "PUT",
        "/agents/writer",
        {
            "description": text,
            "target": {"kind": "echo"},
            "budget": {"tokensPerDay": 1_000_000},
            "heartbeat": {"every": "1h", "message": text},
        },
    )
    common = {"description": text, "labels": {"team": text[:60], "kind": "sample"}, "payload": {"text": text}}
    function = {"kind": "function", "name": "nothing"}
    failing = {"kind": "function", "name": "failing"}
    jobs = "/agents/writer/jobs"
    await sent("POST", jobs, {**common, "name": "daily-brief", "schedule": "0 9 * * 1-5", "target": function})
    await sent("POST", jobs, {**common, "name": "broken", "schedule": _SELDOM, "target": failing})
    await sent("POST", jobs, {**common, "name": "hourly", "schedule": "every 1h", "message": text[:500]})
    await sent("POST", f"{jobs}/hourly/pause", {"note": text[:200]})
    await sent("POST", jobs, {"name": "follow", "after": {"job": "daily-brief"}, "target": function})
    await sent("PATCH", f"{jobs}/daily-brief", {"description": f"{text} changed"})
    run = (await sent("POST", f"{jobs}/daily-brief/run", {})).body["id"]
    failed = (await sent("POST", f"{jobs}/broken/run", {})).body["id"]
    await sent("POST", "/agents/writer/messages", {"session": "chat", "message": text})
    await sent("POST", "/keys", {"name": text[:100], "role": "member"})

    async def ended() -> bool:
        states = [(await ask("GET", f"/runs/{each}")).body["state"] for each in (run, failed)]
        talk = (await ask("GET", "/agents/writer/sessions/chat")).body
        followed = (await ask("GET", f"{jobs}/follow/runs")).body["runs"]
        return (
            states == ["succeeded", "failed"]
            and bool((await ask("GET", "/incidents")).body["incidents"])
            and len(talk["history"]) == 2  # the message and its answer
            and [each["state"] for each in followed] == ["succeeded"]
        )

    await eventually(ended)
    incident = (await ask("GET", "/incidents")).body["incidents"][0]["id"]
    return World("writer", "daily-brief", "broken", run, failed, "chat", incident)
