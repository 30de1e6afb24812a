"""The cost of open dashboards: the CPU of a server at 100 runs/s, with and without 200 of them.

    python -m benchmarks.dashboards_open
    python -m benchmarks.dashboards_open --store sqlite --dashboards 200 --runs 100 --json

The server, with its engine, is a process of its own. The dashboards are in another one. Each has its own
sign-in session and does what the page does in a browser (`static/live.js`): it loads its page, follows the
stream of coalesced events, and fetches the regions that an event concerns, all in one request, with the same
pauses, as a page that has been open for a minute. A third of them each shows the home page, the list of jobs,
and a job. The difference is the CPU time of the server process with them and without, as a share of a core.
Processes of the database are not counted. A window is a multiple of 15 s, the pause of a page that changes
all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp

from benchmarks.bare.databases import STORES, fresh
from benchmarks.bare.parts import ask, read_line, start, stop
from wakeful import Wakeful
from wakeful.logs.setup import configure
from wakeful.server.http_app import create_app
from wakeful.server.serve import Listening, exempt_startup_objects, readiness
from wakeful.service.auth.access import LOCAL
from wakeful.settings import Settings

MODULE: Final = "benchmarks.dashboards_open"
TARGET_PERCENT: Final = 5.0
#: The home page, the list of jobs, and the page of a job, each time another one.
PAGES: Final = (".", "jobs", "agents/default/jobs/job-{}")
#: Each job runs once a minute, equally many of them in each second.
_EVERY_S: Final = 60
#: As in static/live.js.
_INTERVAL_MS: Final = 2_000
#: In seconds.
_FETCH_S: Final = 5.0
_INEXACT_S: Final = 15.0
_SPREAD_S: Final = 1.0
_BUSY_FACTOR: Final = 1.5
#: How long the server and the pages settle after a change.
_SETTLE_S: Final = 16.0
_LISTS: Final = {"run": "runs", "job": "jobs", "agent": "agents", "incident": "incidents"}
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Result:
    """One server."""

    store: str
    dashboards: int
    runs_per_s: float
    without_percent: float
    with_percent: float
    fetches_per_s: float
    kb_per_event: float

    @property
    def difference_percent(self) -> float:
        """The cost of the dashboards as a share of a core."""
        return self.with_percent - self.without_percent


# --- the server -----------------------------------------------------------------------------------------


async def serve(url: str, runs_per_s: int) -> None:
    """Run a server and an engine until the input ends; print the address and a key."""
    app = Wakeful(url, secret_key="benchmark")

    @app.function()
    async def nothing() -> str:
        return "done"

    async with app:
        await app.jobs.create_many(
            {
                "name": f"job-{number}",
                "schedule": f"{number % _EVERY_S} * * * * *",
                "target": {"kind": "function", "name": "nothing"},
            }
            for number in range(runs_per_s * _EVERY_S)
        )
        # It is computed a minute after the first job is saved, with or without dashboards, and then kept.
        await app.services.admin.peaks.get(LOCAL, "default")
        http = Listening(create_app(app.services, ready=readiness(app)), Settings(port=0))
        async with http:
            key = await app.services.auth.keys.first_key()
            exempt_startup_objects()  # as the server does
            print(json.dumps({"url": http.url, "key": key}), flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# --- the dashboards -------------------------------------------------------------------------------------


class _Regions(HTMLParser):
    """Finds the regions of a page, and the position of its events."""

    def __init__(self) -> None:
        super().__init__()
        self.regions: dict[str, str] = {}
        self.after = "0"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a region or the position."""
        given = dict(attrs)
        if "data-region" in given and given.get("id"):
            self.regions[str(given["id"])] = given.get("data-on") or ""
        if tag == "meta" and given.get("name") == "events-after":
            self.after = given.get("content") or "0"


def match_of(words: str, changes: dict[str, Any]) -> float | None:
    """Return how long a region that is concerned waits; None: it is not. As `matchOf` in live.js."""
    found: float | None = None
    for word in words.split():
        kind, colon, rest = word.partition(":")
        if not colon:
            agents = kind == "agents" and changes["changed"]["agents"]
            if kind in changes["kinds"] or kind == "figures" or agents:
                return _FETCH_S
        elif rest in changes["changed"].get(_LISTS.get(kind, ""), ()):
            return _FETCH_S
        elif _LISTS.get(kind) in changes["many"]:
            found = _INEXACT_S
    return found


def together(fetched_at: float, wait: float, ahead: float, part: float) -> float:
    """Return when a page may fetch again. As `together` in live.js."""
    begin = part * wait - ahead
    shared = (fetched_at + wait + _SPREAD_S - begin) // wait * wait + begin
    return max(shared, fetched_at + _FETCH_S)


@dataclass
class Dashboard:
    """One open page."""

    session: aiohttp.ClientSession
    url: str
    path: str
    cookies: dict[str, str]
    random: random.Random
    regions: dict[str, str] = field(default_factory=dict)
    dirty: dict[str, float] = field(default_factory=dict)
    #: equal for equal pages, as `phaseOf` in live.js
    part: float = 0.0
    fetched_at: float = -1e9
    ahead_s: float = 0.0
    after: str = "0"
    busy: float = 1.0
    fetches: int = 0
    finished: int = 0
    events: list[int] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    fetching: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Load the page; return the position of its events."""
        async with self.session.get(self.url + self.path, headers=self._headers()) as response:
            text = await response.text()
            assert response.status == 200, (self.path, response.status, text[:300])
        parser = _Regions()
        parser.feed(text)
        self.regions = parser.regions
        # The page has been open for a while: a list has changed all the time, a single job has not.
        is_list = any(":" not in word for words in self.regions.values() for word in words.split())
        self.busy = _INEXACT_S / _FETCH_S if is_list else 1.0
        self.fetched_at = asyncio.get_running_loop().time()
        self.after = parser.after
        self.part = random.Random(self.path).random()
        return parser.after

    async def stay_open(self, after: str) -> None:
        """Follow the events, and fetch what they concern."""
        events = f"{self.url}/api/workspaces/default/events?coalesceMs={_INTERVAL_MS}&after={after}"
        self.fetching = asyncio.create_task(self._fetch())
        try:
            async with self.session.get(events, headers=self._headers()) as response:
                assert response.status == 200, await response.text()
                kind = ""
                async for line in response.content:
                    if line.startswith(b"id: "):
                        self.after = line[4:].strip().decode()
                    elif line.startswith(b"event: "):
                        kind = line[7:].strip().decode()
                    elif line.startswith(b"data: "):
                        self.events.append(len(line))
                        self._received(kind, line[6:])
        finally:
            self.fetching.cancel()

    def _received(self, kind: str, data: bytes) -> None:
        changes = None if kind == "reset" else json.loads(data)
        if changes is not None:
            self.ahead_s = changes["nowMs"] / 1_000 - asyncio.get_running_loop().time()
            self.finished += sum(changes["runs"]["finished"].values())
        for name, words in self.regions.items():
            wait = _FETCH_S if changes is None else match_of(words, changes)
            if wait is not None:
                self.dirty[name] = min(wait, self.dirty.get(name, wait))
                self.wake.set()

    async def _fetch(self) -> None:
        while True:
            await self.wake.wait()
            now = asyncio.get_running_loop().time()
            wait = min(min(self.dirty.values()) * self.busy, _INEXACT_S)
            at = (
                max(together(self.fetched_at, wait, self.ahead_s, self.part), now)
                + self.random.random() * _SPREAD_S
            )
            await asyncio.sleep(at - now)
            is_busy = at - self.fetched_at < 2 * _FETCH_S * self.busy
            self.busy = min(self.busy * _BUSY_FACTOR, _INEXACT_S / _FETCH_S) if is_busy else 1.0
            names, self.dirty = ",".join(self.dirty), {}
            self.wake.clear()
            headers = {**self._headers(), "x-wakeful-region": names, "x-wakeful-after": self.after}
            async with self.session.get(self.url + self.path, headers=headers) as response:
                await response.read()
                assert response.status == 200, (self.path, names, response.status)
            self.fetches += 1
            self.fetched_at = asyncio.get_running_loop().time()

    def _headers(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}


async def browse(url: str, key: str, number: int, pages: list[str]) -> None:
    """Open the dashboards; print how much they fetched after each line of the input."""
    # A browser keeps its connection between two fetches.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4 * _INEXACT_S)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        opened: list[Dashboard] = []
        for index in range(number):
            path = "/workspaces/default/" + pages[index % len(pages)].format(index).strip(".")
            cookies = await sign_in(session, url, key)
            opened.append(Dashboard(session, url, path, cookies, random.Random(index)))
        # A page follows the events as soon as it is loaded.
        streams = [asyncio.create_task(each.stay_open(await each.open())) for each in opened]
        regions = {each.path: each.regions for each in opened[: len(pages)]}
        print(json.dumps({"open": len(opened), "regions": regions}), flush=True)
        reading = asyncio.get_running_loop().run_in_executor
        while await reading(None, sys.stdin.readline):
            for stream in streams:
                if stream.done():
                    stream.result()
            for each in opened:
                if each.fetching is not None and each.fetching.done():
                    each.fetching.result()
            sizes = [size for each in opened for size in each.events]
            counted = {
                "fetches": sum(each.fetches for each in opened),
                "finished": opened[0].finished,
                "by_page": [sum(each.fetches for each in opened[i :: len(pages)]) for i in range(len(pages))],
                "events": len(sizes),
                "median": median(sizes or [0]),
            }
            print(json.dumps(counted), flush=True)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def sign_in(session: aiohttp.ClientSession, url: str, key: str) -> dict[str, str]:
    """Sign in as a browser does; return the cookies."""
    async with session.post(f"{url}/sign-in", data={"key": key}, allow_redirects=False) as response:
        assert response.status == 303, await response.text()
        return {name: morsel.value for name, morsel in response.cookies.items()}


# --- the measurement ------------------------------------------------------------------------------------


def cpu_percent(pid: int, seconds: float) -> float:
    """Return the CPU time of a process in the next seconds, as a share of a core."""
    began, spent = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - spent) / (time.monotonic() - began) * 100


def measure(store: str, dashboards: int, runs: int, seconds: float, rounds: int, pages: list[str]) -> Result:
    """Measure one server, alternately without dashboards and with them."""
    without: list[float] = []
    used: list[float] = []
    fetches: list[float] = []
    sizes: list[float] = []
    rates: list[float] = []
    with fresh(store) as url:
        server = start(MODULE, "--serve", url, "--runs", str(runs))
        try:
            at = read_line(server)
            time.sleep(_SETTLE_S / 2)
            for _ in range(rounds):
                without.append(cpu_percent(server.pid, seconds))
                browsers = start(
                    MODULE,
                    "--browse",
                    at["url"],
                    at["key"],
                    "--dashboards",
                    str(dashboards),
                    "--pages",
                    *pages,
                )
                try:
                    opened = read_line(browsers)
                    print(f"{store}: {opened}", file=sys.stderr)
                    time.sleep(_SETTLE_S)
                    before = ask(browsers)
                    used.append(cpu_percent(server.pid, seconds))
                    after = ask(browsers)
                finally:
                    stop(browsers)
                print(f"{store}: {before} {after}", file=sys.stderr)
                fetches.append((after["fetches"] - before["fetches"]) / seconds)
                rates.append((after["finished"] - before["finished"]) / seconds)
                sizes.append(after["median"] / 1_000)
                time.sleep(_SETTLE_S / 4)
        finally:
            stop(server)
    figures = (rates, without, used, fetches, sizes)
    return Result(store, dashboards, *map(median, figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", choices=STORES, nargs="+", default=list(STORES))
    parser.add_argument("--dashboards", type=int, default=200)
    parser.add_argument("--runs", type=int, default=100, help="runs per second")
    parser.add_argument("--pages", nargs="+", default=list(PAGES), help="paths in the workspace")
    parser.add_argument("--seconds", type=float, default=15, help="of each window")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--browse", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        configure("console")
        asyncio.run(serve(arguments.serve, arguments.runs))
        return
    if arguments.browse:
        url, key = arguments.browse
        asyncio.run(browse(url, key, arguments.dashboards, arguments.pages))
        return
    results = [
        measure(
            store, arguments.dashboards, arguments.runs, arguments.seconds, arguments.rounds, arguments.pages
        )
        for store in arguments.store
    ]
    if arguments.json:
        print(json.dumps([asdict(r) | {"difference_percent": r.difference_percent} for r in results]))
        return
    header = ("without", "with", "difference")
    print(f"{'store':10}{'dashboards':>11}{'runs/s':>8}{''.join(f'{text:>13}' for text in header)}", end="")
    print(f"{'fetches/s':>11}{'event':>11}")
    for r in results:
        shares = (r.without_percent, r.with_percent, r.difference_percent)
        print(f"{r.store:10}{r.dashboards:11}{r.runs_per_s:8.0f}", end="")
        print("".join(f"{share:11.1f} %" for share in shares), end="")
        print(f"{r.fetches_per_s:11.1f}{r.kb_per_event:8.1f} KB")
    print(f"target: a difference under {TARGET_PERCENT:g} % of a core")


if __name__ == "__main__":
    main()
