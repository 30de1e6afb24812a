"""The cache of regions: shared by equal callers, short, and never of a failure."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import Response

from wakeful.dashboard import regions
from wakeful.dashboard.regions import RegionCache, region_key, region_names
from wakeful.service.auth.access import Principal

ADA = Principal("key:1", "member", "acme")


class _Page:
    """Counts how often it is rendered."""

    def __init__(self, status: int = 200) -> None:
        self.rendered = 0
        self._status = status

    async def __call__(self) -> Response:
        self.rendered += 1
        await asyncio.sleep(0)
        return Response(f"<p>{self.rendered}</p>", self._status)


async def test_equal_requests_at_once_and_soon_after_cost_one_rendering():
    cache, page = RegionCache(), _Page()
    key = region_key(ADA, "/jobs?", "rows")
    answers = await asyncio.gather(*(cache.get(key, page) for _ in range(20)))
    answers.append(await cache.get(key, page))
    assert page.rendered == 1
    assert {bytes(each.body) for each in answers} == {b"<p>1</p>"}
    answers[0].headers["x-request-id"] = "1"  # as the middleware does
    assert "x-request-id" not in (await cache.get(key, page)).headers


async def test_a_region_is_rendered_again_after_its_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regions, "KEPT_S", 0.0)
    cache, page = RegionCache(), _Page()
    key = region_key(ADA, "/jobs?", "rows")
    for _ in range(2):
        await cache.get(key, page)
    assert page.rendered == 2


async def test_a_page_that_received_an_event_gets_what_was_rendered_after_it():
    cache, page = RegionCache(), _Page()
    key = region_key(ADA, "/jobs?", "rows")
    await cache.get(key, page, position=7)
    await cache.get(key, page, position=9, after=7)
    assert page.rendered == 1
    assert (await cache.get(key, page, position=9, after=8)).body == b"<p>2</p>"
    assert (await cache.get(key, page, position=9, after=9)).body == b"<p>2</p>"


async def test_a_page_that_changed_something_never_gets_what_was_rendered_before():
    cache, page = RegionCache(), _Page()
    key = region_key(ADA, "/jobs?", "rows")
    await asyncio.gather(*(cache.get(key, page, position=7, after=None) for _ in range(3)))
    assert page.rendered == 3
    assert (await cache.get(key, page, position=7, after=7)).body == b"<p>3</p>"


async def test_a_rendering_that_began_before_an_event_is_not_shared_after_it():
    cache, page = RegionCache(), _Page()
    key = region_key(ADA, "/jobs?", "rows")
    early, late = await asyncio.gather(
        cache.get(key, page, position=7, after=7), cache.get(key, page, position=8, after=8)
    )
    assert page.rendered == 2
    assert late.body == b"<p>2</p>", early.body


@pytest.mark.parametrize("status", [404, 503])
async def test_a_failure_is_not_kept(status: int):
    cache, page = RegionCache(), _Page(status)
    for _ in range(2):
        assert (await cache.get(region_key(ADA, "/jobs?", "rows"), page)).status_code == status
    assert page.rendered == 2


def test_callers_who_see_something_else_do_not_share():
    same = Principal("key:2", "member", "acme", address="10.0.0.1")
    others = [
        Principal("key:1", "admin", "acme"),
        Principal("key:1", "member", "other"),
        Principal("key:1", "member", None),
        Principal("key:1", "agent", "acme", "ada"),
        Principal("key:1", "agent", "acme", "bob"),
        Principal("key:1", "member", "acme", run_id="01980000-0000-7000-8000-000000000000"),
    ]
    key = region_key(ADA, "/jobs?", "rows")
    assert region_key(same, "/jobs?", "rows") == key
    assert len({key, *(region_key(other, "/jobs?", "rows") for other in others)}) == 1 + len(others)
    assert key not in (region_key(ADA, "/jobs?a=1", "rows"), region_key(ADA, "/jobs?", "rows,more"))
    assert key != region_key(ADA, "/jobs?", "rows", "Europe/Berlin")


def test_the_number_of_regions_is_bounded():
    assert region_names(" a, b,,a ") == ("a", "b")
    assert len(region_names(",".join(map(str, range(100))))) == regions.MOST_REGIONS


async def test_long_addresses_count_towards_the_size_of_the_cache():
    cache, page = RegionCache(), _Page()
    for number in range(600):
        await cache.get(region_key(ADA, f"/jobs?q={number}" + "x" * 60_000, "rows"), page)
    assert len(cache._kept) * 60_000 < regions._BUDGET
