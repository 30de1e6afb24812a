"""The jobs that the decorators of an app declare: checked when declared late, saved at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from wakeful.app.calls import is_defined_again, slug_of
from wakeful.app.home import Home
from wakeful.app.tasks import Tasks
from wakeful.document import Defaults, read_definition
from wakeful.errors import AlreadyExists, InvalidArgument, InvalidSchedule
from wakeful.job.job import Definition
from wakeful.job.targets import Function
from wakeful.launch.function import FunctionLauncher
from wakeful.logs import get_logger
from wakeful.schedule.schedules import At
from wakeful.service.auth.access import LOCAL
from wakeful.service.services import Services

log = get_logger("wakeful.app")


class Declared(NamedTuple):
    """A function that is a job, and the document of the job."""

    function: Callable[..., object]
    document: Mapping[str, object]


class DeclaredJobs:
    """Declares functions as jobs of an agent, and saves the jobs."""

    def __init__(
        self,
        services: Services,
        functions: FunctionLauncher,
        tasks: Tasks,
        home: Home,
        known: dict[str, Declared],
        defaults: Defaults,
        where: tuple[str, str],
    ) -> None:
        self._services = services
        self._functions = functions
        self._tasks = tasks
        self._home = home
        self._known = known
        self._defaults = defaults
        #: the workspace and the agent
        self._where = where

    def declare(
        self,
        function: Callable[..., object],
        schedule: object,
        name: str | None,
        options: Mapping[str, object],
    ) -> None:
        """Declare a function as a job. While the app runs, the job is checked, and saved at once."""
        slug = name or slug_of(function)
        known = self._known.get(slug)
        again = (
            known is not None and self._home.loop is not None and is_defined_again(known.function, function)
        )
        if known is not None and not again:
            raise AlreadyExists(f"a job '{slug}' is already declared; give this one another `name`")
        target = Function(slug).to_json()
        document = {**options, "name": slug, "schedule": schedule, "target": target}
        if self._home.loop is not None:
            self._read(document, now_ms=0)  # as of 1970: `_save` judges times that have passed
        self._functions.register(slug, function, replace=again)
        # Before it looks whether the app runs: a start that is under way saves what is known.
        self._known[slug] = Declared(function, document)
        if self._home.loop is not None:
            try:
                self._home.save(slug, lambda: self._save(document))
            except BaseException:
                if known is None:
                    self._functions.unregister(slug)
                    del self._known[slug]
                else:
                    self._functions.register(slug, known.function, replace=True)
                    self._known[slug] = known
                raise
        self._tasks.declare(slug, function)

    async def save_all(self) -> None:
        """Save the jobs declared so far, also those that are declared meanwhile."""
        saved: set[str] = set()
        while unsaved := [slug for slug in [*self._known] if slug not in saved]:
            for slug in unsaved:
                await self._save(self._known[slug].document)
            saved.update(unsaved)

    async def _save(self, document: Mapping[str, object]) -> None:
        """Upsert a job. One whose only time has passed is logged, and not an error."""
        try:
            await self._services.jobs.upsert(LOCAL, *self._where, document)
        except InvalidSchedule as error:
            # Read it as of 1970: a past time is then valid, and other errors are still raised.
            timing = self._read(document, now_ms=0).timing
            at = timing.schedule if timing else None
            if not isinstance(at, At) or at.at_ms > self._services.now_ms():
                raise _name_job(document, error) from error
            log.info(
                "job.over",
                job=document["name"],
                workspace=self._where[0],
                agent=self._where[1],
                reason="its time had passed before the start",
            )
        except InvalidArgument as error:
            raise _name_job(document, error) from error

    def _read(self, document: Mapping[str, object], now_ms: int) -> Definition:
        try:
            return read_definition(document, now_ms=now_ms, defaults=self._defaults)
        except InvalidArgument as error:
            raise _name_job(document, error) from error


def _name_job(document: Mapping[str, object], error: InvalidArgument) -> InvalidArgument:
    return type(error)(f"job '{document['name']}': {error.message}")
