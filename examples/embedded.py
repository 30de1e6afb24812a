"""Wakeful inside a Python program: a function that runs every second, and one that runs on request.

    python examples/embedded.py

Stop it with Ctrl-C and start it again: the job and its history are still in `wakeful.db`. Start it twice at
the same time: the processes share the ticks, and none fires twice.
"""

import asyncio

from wakeful import Function, Wakeful

app = Wakeful("sqlite:///wakeful.db")


@app.every("1s")
async def watch(run):
    print(f"tick of {run.scheduled_at:%H:%M:%S}, attempt {run.attempt}", flush=True)


@app.function()
async def greet(run):
    return f"hello, {run.payload['name']}"


async def main():
    async with app:
        await app.jobs.upsert(
            "greeting",
            schedule="0 9 * * MON-FRI",
            tz="Europe/Berlin",
            target=Function("greet"),
            payload={"name": "you"},
        )
        run = await app.jobs.run("greeting")  # now, regardless of the schedule
        print((await app.runs.wait(run.id)).output, flush=True)
        await app.serve_forever()


asyncio.run(main())
