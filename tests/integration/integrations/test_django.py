"""A real Django project, the one in `examples`: its database, its commands, its processes."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.integration.conftest import on_one_store
from tests.support.paths import ROOT
from tests.support.web_programs import (
    Program,
    environment,
    free_port,
    program,
    request,
    run_program,
    wait_until,
)

pytest.importorskip("django")

#: More views and jobs, for what the example does not show.
_VIEWS = """
from django.db import connection, transaction
from django.http import JsonResponse
from django.urls import path
from shop import more_jobs
from shop.models import Order
from shop.urls import urlpatterns
from shop.wakeful_jobs import send_receipt
from wakeful.integrations.django import app


def roll_back(request):
    try:
        with transaction.atomic():
            order = Order.objects.create(email="nobody@example.com")
            transaction.on_commit(lambda: app.sync.enqueue(send_receipt, order.pk))
            raise ZeroDivisionError
    except ZeroDivisionError:
        return JsonResponse({"id": order.pk})


def in_transaction(request, email):
    try:
        with transaction.atomic():
            order = Order.objects.create(email=email)
            call = app.sync.enqueue(send_receipt, order.pk, connection=connection)
            with transaction.atomic():  # a savepoint
                app.sync.enqueue(send_receipt, order.pk, connection=connection)
                transaction.set_rollback(True)
            if email.startswith("nobody"):
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    return JsonResponse({"id": order.pk, "run": call.run.id})


async def from_async(request):
    order = await Order.objects.acreate(email="async@example.com")
    run = await app.enqueue(send_receipt, order.pk)
    return JsonResponse({"id": order.pk, "run": run.id})


def run_state(request, run_id):
    run = app.sync.runs.get(run_id)
    return JsonResponse({"state": run.state, "output": run.output, "error": run.error})


def call(request, name):
    return JsonResponse({"run": app.sync.enqueue(getattr(more_jobs, name)).run.id})


urlpatterns += [
    path("roll-back/", roll_back),
    path("in-transaction/<email>/", in_transaction),
    path("async/", from_async),
    path("call/<name>/", call),
    path("runs/<run_id>/", run_state),
]
"""
_JOBS = """
import threading
from django.db import connection, connections
from shop.models import Order
from wakeful.integrations.django import app


@app.function(max_attempts=4, backoff={"baseMs": 100, "maxMs": 100})
def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid() FROM pg_sleep(0.5)")
        return cursor.fetchone()[0]


@app.function()
async def count_async() -> int:
    return await Order.objects.acount()


@app.function(max_attempts=1)
async def count_on_the_loop() -> int:
    return Order.objects.count()


@app.function()
def queries() -> int:
    Order.objects.count()
    return len(connection.queries)
"""


#: The name of connections, by the program.
_NAME = """
import sys
name = "web" if "gunicorn" in sys.argv[0] else "handlers"
DATABASES["default"]["OPTIONS"] = {"application_name": name}
"""


class Project:
    """A copy of the example, on a database of the test."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder / "project"
        shutil.copytree(ROOT / "examples" / "django_shop", self.folder)
        (self.folder / "shop" / "more_urls.py").write_text(_VIEWS)
        (self.folder / "shop" / "more_jobs.py").write_text(_JOBS)
        jobs = self.folder / "shop" / "wakeful_jobs.py"
        jobs.write_text(jobs.read_text() + "\n\nimport shop.more_jobs\n")
        self._settings = "from shop.settings import *\nROOT_URLCONF = 'shop.more_urls'\n"
        if database.startswith("postgres"):
            self._settings += f"DATABASES = {{'default': {_django_database(database)!r}}}\n{_NAME}"
        self.configure()
        self.manage("migrate", "--run-syncdb", "-v0")

    def configure(self, text: str = "") -> None:
        """Write the settings, with more lines at the end."""
        (self.folder / "shop" / "test_settings.py").write_text(self._settings + text)

    def manage(self, *arguments: str, **variables: str) -> str:
        return run_program(
            self.folder, "manage.py", *arguments, DJANGO_SETTINGS_MODULE="shop.test_settings", **variables
        )

    def python(self, code: str) -> Any:
        """Return what the last expression of a program in the project prints, as JSON."""
        return json.loads(self.manage("shell", "-v0", "-c", code).strip().splitlines()[-1])

    def start(self, *arguments: str, port: int) -> AbstractContextManager[Program]:
        return program(self.folder, *arguments, port=port, DJANGO_SETTINGS_MODULE="shop.test_settings")

    def serve(self) -> AbstractContextManager[Program]:
        """Run the scheduler."""
        port = free_port()
        return self.start(
            "manage.py", "wakeful", "serve", "--port", str(port), "--log-format", "json", port=port
        )

    def web(self, port: int, *options: str) -> AbstractContextManager[Program]:
        """Run gunicorn with two workers."""
        return self.start(
            *(
                "-m",
                "gunicorn",
                "--workers",
                "2",
                "--bind",
                f"127.0.0.1:{port}",
                "--no-control-socket",
                *options,
            ),
            "shop.wsgi",
            port=port,
        )


def _django_database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    query = dict(each.split("=", 1) for each in parts.query.split("&") if each)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(query.get("host", parts.hostname or "")),
        "PORT": query.get("port", parts.port or ""),
        "CONN_MAX_AGE": None,
    }


@pytest.fixture
def project(tmp_path: Path, database: str) -> Project:
    return Project(tmp_path, database)


def receipts(url: str) -> dict[str, int]:
    """Return the number of receipts by the address of the order."""
    return {each["email"]: each["receipts"] for each in request(f"{url}/orders/")["orders"]}


def finished(url: str, run_id: str) -> dict[str, Any]:
    """Wait until a run is over, and return it."""

    def look() -> dict[str, Any] | None:
        run = request(f"{url}/runs/{run_id}/")
        return run if run["state"] in ("succeeded", "failed") else None

    found = wait_until(look)
    assert found is not None
    return found


def test_web_processes_enqueue_and_the_command_runs_the_work(project: Project, database: str):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with project.web(port) as web:
        # Before a scheduler runs: the work waits in the database.
        assert request(f"{url}/orders/", "email=ada@example.com") == {"id": 1}
        rolled_back = request(f"{url}/roll-back/")["id"]
        made = request(f"{url}/async/")
        joined = request(f"{url}/in-transaction/bob@example.com/")
        lost = request(f"{url}/in-transaction/nobody@example.com/")
        with project.serve() as scheduler:
            wait_until(lambda: receipts(url).get("ada@example.com"))
            assert finished(url, made["run"])["output"] == "sent to async@example.com"
            assert finished(url, joined["run"])["output"] == "sent to bob@example.com"
            assert request(f"{url}/runs/{lost['run']}/") == 500  # not found: it was never stored
            again = request(f"{url}/in-transaction/eve@example.com/")
            assert finished(url, again["run"])["output"] == "sent to eve@example.com"
            assert receipts(url) == {
                "ada@example.com": 1,
                "async@example.com": 1,
                "bob@example.com": 1,
                "eve@example.com": 1,
            }
            # No run at all for the orders that were rolled back.
            assert f'"order_id":{rolled_back}' not in scheduler.output
            # Async handlers use the async ORM; on the event loop Django refuses the other one.
            count = request(f"{url}/call/count_async/")["run"]
            assert finished(url, count)["output"] == "4"
            refused = finished(url, request(f"{url}/call/count_on_the_loop/")["run"])
            assert "SynchronousOnlyOperation" in refused["error"]
            # With DEBUG, Django keeps each query; a process that runs for weeks must not.
            for _ in range(3):
                run = finished(url, request(f"{url}/call/queries/")["run"])
                assert run["output"] == "1"
            if database.startswith("postgres"):
                _survive_lost_connections(url, database)
            assert scheduler.stop() == 0
        assert '"event": "engine.stopped"' in scheduler.output
        assert "engine.started" not in web.output
        assert web.stop() == 0


def _survive_lost_connections(url: str, database: str) -> None:
    """End the connections of all handlers: each thread opens a new one after its first error."""
    import psycopg

    first = [request(f"{url}/call/backend/")["run"] for _ in range(4)]
    assert {finished(url, each)["state"] for each in first} == {"succeeded"}
    with psycopg.connect(database, autocommit=True) as admin:
        ended = admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'handlers'"
        ).fetchall()
    assert len(ended) > 1
    again = [request(f"{url}/call/backend/")["run"] for _ in range(4)]
    assert {finished(url, each)["state"] for each in again} == {"succeeded"}


@pytest.mark.slow
@on_one_store
def test_the_scheduler_runs_in_the_web_processes_by_a_setting(project: Project):
    project.configure("MIDDLEWARE = [*MIDDLEWARE, 'wakeful.integrations.django.middleware.RunScheduler']\n")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with project.web(port) as web:
        request(f"{url}/orders/", "email=ada@example.com")
        wait_until(lambda: receipts(url).get("ada@example.com"))
        assert web.stop() == 0
    assert _workers(project) == 0  # both have signed off
    assert web.output.count("worker.") == 0


@on_one_store
def test_a_process_with_two_handlers_starts_one_scheduler(project: Project):
    project.configure("MIDDLEWARE = [*MIDDLEWARE, 'wakeful.integrations.django.middleware.RunScheduler']\n")
    found = project.python(
        "import json\n"
        "from django.core.asgi import get_asgi_application\n"
        "from django.core.wsgi import get_wsgi_application\n"
        "from wakeful.integrations.django import app\n"
        "before = len(app.sync.jobs.list())\n"  # connects
        "get_wsgi_application(), get_asgi_application()\n"
        "print(json.dumps([before, app.alive, len(app.sync.jobs.list()) > 0]))\n"
    )
    assert found == [0, True, True]


@pytest.mark.slow
@on_one_store
def test_the_reloader_starts_one_scheduler_and_commands_start_none(project: Project):
    project.configure("MIDDLEWARE = [*MIDDLEWARE, 'wakeful.integrations.django.middleware.RunScheduler']\n")
    project.manage("check")
    assert _workers(project) == 0
    port = free_port()
    with project.start("manage.py", "runserver", f"127.0.0.1:{port}", port=port):
        wait_until(lambda: _workers(project))
        assert _workers(project) == 1
        urls = project.folder / "shop" / "urls.py"
        urls.write_text(urls.read_text() + "\n# changed\n")
        before = _worker_names(project)
        wait_until(lambda: _workers(project) == 1 and _worker_names(project) != before)


def _worker_names(project: Project) -> set[str]:
    with closing(sqlite3.connect(project.folder / "db.sqlite3")) as db:
        try:
            return {name for (name,) in db.execute("SELECT name FROM workers")}
        except sqlite3.OperationalError:  # no tables yet
            return set()


def _workers(project: Project) -> int:
    return len(_worker_names(project))


@on_one_store
def test_settings_of_the_project_apply(project: Project):
    assert "schema" in project.manage("wakeful", "migrate")
    project.configure("WAKEFUL = {'workspace': 'default', 'agent': 'shop'}\n")
    found = project.python(
        "import json; from wakeful.integrations.django import app; "
        "app.sync.jobs.list(); "  # connects, as a call while the project is loaded does
        "from wakeful.integrations.django import served_app; assert app is served_app; app.start(); "
        "job = app.sync.jobs.get('report'); app.stop(); "
        "print(json.dumps([job.agent, job.schedule.tz]))"
    )
    assert found == ["shop", "Europe/Berlin"]
    other = project.manage("wakeful", "--version")
    assert other.startswith("wakeful ")


_CASES = {
    "unknown key": ("WAKEFUL = {'databse': 'x'}", "there is no 'databse'"),
    "a database in memory": (
        "DATABASES['default']['NAME'] = ':memory:'",
        "needs PostgreSQL or an SQLite file",
    ),
    "a wrong argument": ("WAKEFUL = {'url': 'mysql://db/shop'}", "is not a database address"),
}


@pytest.mark.parametrize("case", _CASES)
@on_one_store
def test_wrong_settings_are_named(project: Project, case: str):
    lines, message = _CASES[case]
    project.configure(f"{lines}\n")
    found = _refusal(project)
    assert message in found


def _refusal(project: Project) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=project.folder,
        env=environment(project.folder, DJANGO_SETTINGS_MODULE="shop.test_settings"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


@on_one_store
def test_tests_of_the_project_do_not_use_its_database(project: Project):
    found = project.python(
        "import json\n"
        "from django.test.utils import setup_test_environment\n"
        "from shop.wakeful_jobs import send_receipt\n"
        "from wakeful.errors import FailedPrecondition\n"
        "from wakeful.integrations.django import app\n"
        "setup_test_environment()\n"
        "try:\n"
        "    app.sync.enqueue(send_receipt, 1)\n"
        "except FailedPrecondition as error:\n"
        "    print(json.dumps(str(error)))"
    )
    assert "wakeful.testing.Harness" in found
