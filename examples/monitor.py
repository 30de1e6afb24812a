"""An agent that watches the load of a machine: rarely while it is normal, every second while it is high.

    python examples/monitor.py

The schedule is dynamic: each reading sets the time to the next one. A source that does not answer is tried
again after half a second, three times. The readings are invented, so that something happens within seconds.
Stop the program at any time and start it again: it continues where it was.
"""

import asyncio
from dataclasses import dataclass

from wakeful import Agent, Delay, Emit, SetCron, SetState, Signal, Wakeful, on

app = Wakeful("sqlite:///monitor.db")

HIGH = 80
#: load in per cent; None: no answer
READINGS = [20, None, 93, 97, 41, 18, 12]


def read_load(number):
    load = READINGS[number % len(READINGS)]
    if load is None:
        raise ConnectionError("no answer")
    return load


@dataclass
class Watch:
    readings: int = 0
    #: seconds between two readings
    interval: int = 1
    alert: bool = False


@app.agent
class Monitor(Agent):
    name = "monitor"
    state = Watch

    @on("monitor.start")
    async def begin(self, signal, ctx):
        return SetCron(f"every {ctx.state.interval}s", "monitor.read", job_id="read")

    @on("monitor.read", "monitor.retry")
    async def read(self, signal, ctx):
        watch = ctx.state
        attempt = (signal.data or {}).get("attempt", 1)
        try:
            load = read_load(watch.readings)
        except ConnectionError as error:
            print(f"attempt {attempt}: {error}", flush=True)
            counted = SetState(readings=watch.readings + 1)
            if attempt == 3:
                return [counted, Emit(Signal("monitor.unreachable", {"error": str(error)}))]
            return [counted, Delay("500ms", Signal("monitor.retry", {"attempt": attempt + 1}))]
        alert = load > HIGH
        interval = 1 if alert else min(2 * watch.interval, 60)
        print(f"load {load} %, next reading in {interval} s", flush=True)
        directives = [
            SetState(readings=watch.readings + 1, interval=interval, alert=alert),
            SetCron(f"every {interval}s", "monitor.read", job_id="read"),
        ]
        if alert != watch.alert:
            kind = "alert" if alert else "recovered"
            directives.append(Emit(Signal(f"monitor.{kind}", {"load": load})))
            print(f"{kind}: load {load} %", flush=True)
        return directives


async def main():
    async with app:
        await app.agents.send("monitor", "default", "monitor.start")
        await app.serve_forever()


asyncio.run(main())
