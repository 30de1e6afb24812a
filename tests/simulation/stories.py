"""The decorator that runs a test in a simulated world: `@simulated() async def test_…(world): …`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.simulation.virtual_loop import run_virtually
from tests.simulation.world import World

Story = Callable[..., Awaitable[None]]


def simulated(**settings: Any) -> Callable[[Story], Callable[..., None]]:
    """Run the test on virtual time in a world with these settings, then run the checker."""

    def decorate(story: Story) -> Callable[..., None]:
        parameters = list(inspect.signature(story).parameters.values())
        assert parameters[0].name == "world"

        def test(tmp_path: Path, **others: Any) -> None:
            async def told() -> None:
                async with World(tmp_path, story.__name__, **settings) as world:
                    await story(world, **others)
                    world.check()

            run_virtually(told())

        test.__name__, test.__doc__ = story.__name__, story.__doc__
        folder = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([folder, *parameters[1:]])  # type: ignore[attr-defined]
        return test

    return decorate
