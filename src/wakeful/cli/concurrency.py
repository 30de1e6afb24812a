"""Several requests, at a time or one after the other: their results, and the errors of those that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from wakeful.client.connection import check_next
from wakeful.errors import Unauthenticated, Unavailable, WakefulError
from wakeful.model import Page

T = TypeVar("T")
R = TypeVar("R")

#: Concurrent requests.
BATCH: Final = 8


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the items in groups of `BATCH`."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


async def gather(requests: Iterable[Awaitable[R]]) -> list[R | WakefulError]:
    """Return the result or WakefulError of each request; raise any other exception."""
    results: list[R | WakefulError] = []
    for result in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, WakefulError):
            raise result
        results.append(result)
    return results


async def full_page(
    fetch: Callable[[int, str | None], Awaitable[Page[T]]], limit: int, cursor: str | None = None
) -> Page[T]:
    """Return the first `limit` items of a list. `fetch` takes the size and the cursor of a page.

    With a filter, the server looks at some thousands for a page: it may be short or empty, and not the last.
    """
    found: list[T] = []
    while True:
        page = await fetch(limit - len(found), cursor)
        found += page
        if page.cursor is None or len(found) >= limit:
            return Page(found, page.cursor)
        cursor = check_next(cursor, page.cursor)


async def for_each(
    items: Sequence[T],
    request: Callable[[T], Awaitable[R]],
    step: Callable[[int], None] = lambda done: None,
) -> tuple[list[tuple[T, R]], list[tuple[T, WakefulError]]]:
    """Make a request for each item, a batch at a time. Returns the results and the errors.

    `step` is called with the number of each batch.
    """
    done: list[tuple[T, R]] = []
    failed: list[tuple[T, WakefulError]] = []
    for batch in batches(items):
        for item, result in zip(batch, await gather(map(request, batch)), strict=True):
            if isinstance(result, WakefulError):
                failed.append((item, result))
            else:
                done.append((item, result))
        step(len(batch))
    return done, failed


def raise_if_unreachable(errors: Iterable[WakefulError]) -> None:
    """Raise the first error that other requests would have too: no response, or no valid key."""
    for error in errors:
        if isinstance(error, Unavailable | Unauthenticated):
            raise error
