"""How pytest collects: quickly, since every worker of a run collects all tests, and the longest first.

`make test` leaves out what `make test-all` adds: the second store of tests that are not about stores, and
the tests that are slow. A test that is named on the command line always runs, on both stores.
"""

from __future__ import annotations

import gc
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

from tests.support.effort import ALL

#: How many new objects start a garbage collection, and how many of those a thorough one.
_SELDOM = (20_000, 20, 20)

#: Tests that take half a minute.
_LONGEST = (
    "tests/store/postgres/test_versions.py",
    "tests/integration/docs/test_docs.py::test_the_examples_of_a_page_run_in_order[README.md]",
    "tests/integration/service/auth/test_permissions.py::test_every_path_responds",
    "tests/chaos/",
)

#: Tests that only `make test-all` runs, besides those with the mark `slow`: most of the browser, the examples
#: and deployments of the documentation, killed processes, generated requests, query plans of large tables,
#: other PostgreSQLs, packages, and whether the simulation finds what is broken on purpose.
_SLOW = (
    "tests/browser/test_admin.py",
    "tests/browser/test_agents.py",
    "tests/browser/test_calendar.py",
    "tests/browser/test_chat.py",
    "tests/browser/test_consent.py",
    "tests/browser/test_dead_letters.py",
    "tests/browser/test_early_events.py",
    "tests/browser/test_inbox.py",
    "tests/browser/test_job_form.py",
    "tests/browser/test_job_life.py",
    "tests/browser/test_jobs.py",
    "tests/browser/test_keyboard.py",
    "tests/browser/test_pages.py",
    "tests/browser/test_palette.py",
    "tests/browser/test_refresh.py",
    "tests/browser/test_times_and_runs.py",
    "tests/chaos",
    "tests/integration/api/http/test_schemathesis.py",
    "tests/integration/deploy/test_docker.py",
    "tests/integration/deploy/test_monitoring.py",
    "tests/integration/docs/test_docs.py",
    "tests/integration/docs/test_examples.py",
    "tests/integration/engine/test_suspended_replica.py",
    "tests/integration/scripts",
    "tests/integration/store/test_poolers.py",
    "tests/integration/support/test_doc_shell.py",
    "tests/integration/*/test_rolling_restarts.py",
    "tests/simulation/*test_broken_*.py",
    "tests/store/*query_plans.py",
    "tests/store/postgres/test_servers.py",
    "tests/store/postgres/test_versions.py",
)
#: Tests about stores: they run on both.
_OF_STORES = "tests/store/"
#: So many cases of such a test are divided between the stores.
_SEVERAL = 2
#: One of so many other tests runs on PostgreSQL.
_ON_POSTGRES = 6
#: The names of the parameter of a test that says on which store it runs.
_STORE = ("database", "store", "on")


# jsonschema, which the client of Kubernetes imports, compiles 38 grammars of addresses if it finds them: a
# sixth of the time of a collection. No test checks such formats.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without garbage collection; then exclude the loaded modules and tests from it.

    The tests keep few objects, so a rare collection is enough.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*_SELDOM)
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what `make test-all` adds."""
    name = collection_path.relative_to(config.rootpath).as_posix()
    return True if _is_short(config) and any(fnmatchcase(name, each) for each in _SLOW) else None


def _is_short(config: pytest.Config) -> bool:
    return not ALL and config.args_source is pytest.Config.ArgsSource.TESTPATHS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `make test-all` adds, and start with the longest tests.

    Otherwise one worker would run them at the end while the others have no work.
    """
    if _is_short(config):
        left_out = _on_other_store(items) + [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def _on_other_store(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return one of each two items that are one test on two stores, chosen by the name of the test.

    A sixth of the tests run on PostgreSQL, where a test takes four times the CPU. A test about stores runs
    on both, with every second case on each if it has several.
    """
    same: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            given = item.callspec.params
            store = next((given[name] for name in _STORE if isinstance(given.get(name), str)), None)
            if store in ("sqlite", "postgres"):
                test, _, values = item.nodeid.partition("[")
                others = [value for value in values.rstrip("]").split("-") if value != store]
                same["-".join([test, *others])][store] = item
    left_out, cases = [], defaultdict(list)
    for test, stores in same.items():
        if len(stores) == 2 and test.startswith(_OF_STORES):
            cases[stores["sqlite"].nodeid.partition("[")[0]].append(stores)
        elif len(stores) == 2:
            left_out.append(stores["postgres" if zlib.crc32(test.encode()) % _ON_POSTGRES else "sqlite"])
    for several in cases.values():
        if len(several) >= _SEVERAL:
            left_out += [stores["postgres"] for stores in several[::2]]
            left_out += [stores["sqlite"] for stores in several[1::2]]
    return left_out


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out the modules without examples in their docstrings: importing and searching them takes long."""
    return [each for each in (yield) if not isinstance(each, DoctestModule) or ">>>" in file_path.read_text()]
