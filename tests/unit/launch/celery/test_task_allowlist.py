"""Which tasks jobs may run."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery

from wakeful.errors import InvalidArgument
from wakeful.launch.celery.client import CeleryClient
from wakeful.launch.celery.target import TaskAllowlist, check_target, load_app
from wakeful.launch.port import NotAllowed
from wakeful.settings import Settings

REGISTERED = frozenset({"shop.report", "celery.backend_cleanup"})


@pytest.mark.parametrize("entries", [("shop.report",), ("shop.*",), ("*",), ("other", "shop.rep*")])
def test_an_entry_allows_a_name_or_names_that_start_so(entries: tuple[str, ...]) -> None:
    TaskAllowlist(entries).check("shop.report", frozenset())


@pytest.mark.parametrize("task", ["shop", "shop.reports", "xshop.report", "celery.backend_cleanup"])
def test_other_tasks_are_refused_also_if_the_app_has_them_or_is_trusted(task: str) -> None:
    with pytest.raises(NotAllowed, match="WAKEFUL_CELERY_TASKS"):
        TaskAllowlist(["shop.report"], trusted=True).check(task, {task})


def test_without_entries_the_tasks_that_the_code_registers_are_allowed() -> None:
    TaskAllowlist([]).check("shop.report", REGISTERED)
    TaskAllowlist([]).check("shop.any", None)
    with pytest.raises(NotAllowed, match=r"'shop.reports' is not a task of the Celery app"):
        TaskAllowlist([]).check("shop.reports", REGISTERED)
    with pytest.raises(NotAllowed):
        TaskAllowlist([]).check("celery.backend_cleanup", REGISTERED)


def test_without_entries_and_code_no_task_is_allowed_unless_the_program_is_trusted() -> None:
    with pytest.raises(NotAllowed, match="its tasks are not known"):
        TaskAllowlist([]).check("shop.report", {"celery.backend_cleanup"})
    TaskAllowlist([], trusted=True).check("shop.report", frozenset())


@pytest.mark.parametrize("entry", ["*.report", "shop.*.daily", "a b", "**"])
def test_an_invalid_entry_is_refused(entry: str) -> None:
    with pytest.raises(InvalidArgument, match="WAKEFUL_CELERY_TASKS"):
        TaskAllowlist([entry])


def test_no_header_of_a_job_replaces_the_task_that_is_executed() -> None:
    own = Celery("shop").amqp.as_task_v2("id", "shop.report").headers
    assert "task" in own
    for name in [*own, "TASK", "compression", "wakeful-key"]:
        with pytest.raises(InvalidArgument, match="it is reserved"):
            check_target(
                {"kind": "celery", "task": "shop.report", "options": {"headers": {name: "admin.drop"}}}
            )
    check_target({"kind": "celery", "task": "shop.report", "options": {"headers": {"tenant": "acme"}}})


def test_the_task_modules_of_an_app_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toyshop.py").write_text(
        "from celery import Celery\napp = Celery('toyshop', include=['toyshop_tasks'])\n"
    )
    tasks = tmp_path / "toyshop_tasks.py"
    tasks.write_text("import no_such_module\n")
    settings = Settings(celery_app="toyshop:app")
    with pytest.raises(InvalidArgument, match=r"WAKEFUL_CELERY_APP: the tasks of 'toyshop:app' cannot be im"):
        load_app(settings)
    tasks.write_text("from toyshop import app\n\n\n@app.task\ndef pack(): ...\n")
    client = CeleryClient(load_app(settings), terminate=True)
    TaskAllowlist([]).check("toyshop_tasks.pack", client.registered)
