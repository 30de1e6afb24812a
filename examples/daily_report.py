"""An agent with a daily schedule: a report at 06:00 in New York, on everything since the last one.

    python examples/daily_report.py

It also sends itself a signal for the first report of the day. Stop it with Ctrl-C and start it again: the
state, the schedule and the history are in `reports.db`. The signal has the date as its id, so the same day's
report is not generated twice.
"""

import asyncio
from datetime import UTC, datetime

from wakeful import Agent, Emit, Schedule, SetState, Signal, Wakeful, on

app = Wakeful("sqlite:///reports.db")


@app.agent
class DailyReport(Agent):
    name = "daily-report"
    state = {"count": 0}
    schedules = [Schedule("0 6 * * *", "report.generate", job_id="daily", tz="America/New_York")]

    @on("report.generate")
    async def generate(self, signal, ctx):
        since = f"{ctx.last_run:%Y-%m-%d %H:%M} UTC" if ctx.last_run else "the beginning"
        number = ctx.state["count"] + 1
        report = f"report {number}: everything since {since}"
        # The count, the signal and the outcome of this run are written in one transaction, or not at all.
        return [SetState(count=number), Emit(Signal("report.ready", {"text": report})), report]


async def main():
    async with app:
        await app.agents.start("daily-report")
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        first = Signal("report.generate", id=today, source="/daily-report")
        run = await app.agents.send("daily-report", "default", first)
        print("a duplicate:" if run.duplicate else "generated:", (await app.runs.wait(run.id)).output)
        instance = await app.agents.instance("daily-report")
        (daily,) = instance.schedules
        print(f"state: {dict(instance.state)}; next report at {daily.next_at:%Y-%m-%d %H:%M} UTC", flush=True)
        await app.serve_forever()


asyncio.run(main())
