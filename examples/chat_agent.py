"""An agent that is only a prompt: it runs at nine, schedules its own follow-up and reports to a channel.

    export WAKEFUL_CHANNEL_TEAM='json://127.0.0.1:11434/channel'    any Apprise URL: slack://…, tgram://…
    python examples/chat_agent.py                                   runs until it is stopped
    python examples/chat_agent.py --now                             runs the job once, at once

The model is at http://127.0.0.1:11434/v1: Ollama, or examples/chat_endpoint.py. For another one set CHAT_URL,
CHAT_MODEL and, for its API key, WAKEFUL_CHAT_KEY_MAIN.
"""

import asyncio
import os
import sys

from wakeful import Chat, Wakeful

PROMPT = """\
You watch the build of our project. Report in one sentence what a developer should know.
If something needs another look, add a job for yourself with the tool `cron`, with deliver: true."""

app = Wakeful("sqlite:///chat_agent.db", agent="watcher", allow_private_targets=True)
model = Chat(
    os.environ.get("CHAT_URL", "http://127.0.0.1:11434/v1"),
    os.environ.get("CHAT_MODEL", "qwen3"),
    system=PROMPT,
    key="main" if "WAKEFUL_CHAT_KEY_MAIN" in os.environ else None,
    max_tokens=500,
)


async def main():
    async with app:
        # Jobs that the agent makes for itself have this target too, and may deliver to this channel.
        await app.agents.put("watcher", {"target": model, "tz": "Europe/Berlin", "channel": "team"})
        await app.jobs.upsert(
            "morning",
            schedule="0 9 * * 1-5",
            message="How is the build? Schedule a follow-up if it is red.",
            deliver=True,
            budget={"tokensPerDay": 200_000},
        )
        if "--now" not in sys.argv:
            return await app.serve_forever()
        run = await app.runs.wait((await app.jobs.run("morning")).id)
        print(run.state, "-", run.output or run.error)
        print("tokens:", (run.usage or {}).get("tokens"))
        for job in await app.jobs.list():
            print(f"{job.name}: {job.explain}")
        while (await app.runs.get(run.id)).delivery == "pending":  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.1)


asyncio.run(main())
