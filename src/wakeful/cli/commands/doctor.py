"""`wakeful doctor`: check the server, its database and the work that waits."""

from __future__ import annotations

import time
from typing import Annotated, Final, cast

import typer
from rich.text import Text

from wakeful.cli import exit_codes
from wakeful.cli.output import escape
from wakeful.cli.serve_options import Db, settings_with
from wakeful.cli.session import CliSession, command
from wakeful.errors import Unavailable, WakefulError
from wakeful.model.codec import to_json
from wakeful.service.admin import diagnosis
from wakeful.service.admin.doctor import examine_database
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

_MARKS: Final = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "error": ("error", "bold red"),
    "unknown": ("unknown", "dim"),
}
RUNBOOKS: Final = "docs/operations/runbooks.md"

CheckJson = dict[str, Json]


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "doctor",
        examples=("wakeful doctor", "wakeful doctor --json", "wakeful doctor --db sqlite:///wakeful.db"),
        panel="Server",
    )
    async def doctor(
        s: CliSession,
        db: Db = None,
        strict: Annotated[bool, typer.Option("--strict", help="exit with 1 for warnings too")] = False,
    ) -> int:
        """Check the server, its database and the work that waits, and say what to do.

        If the server cannot be reached, only the database of --db or WAKEFUL_DB is checked; nothing is
        changed. The exit code is 0 without errors, 1 if a check failed, and 7 if neither responds.
        """
        checks, reached = await _checks(s, db)
        errors = sum(check["state"] == "error" for check in checks)
        warnings = sum(check["state"] == "warning" for check in checks)
        state = "error" if errors else "warning" if warnings else "ok"
        lines = [line for check in checks for line in _lines(check)]
        counts = f"{plural(len(checks), 'check')}, {plural(errors, 'error')}, {plural(warnings, 'warning')}"
        s.out.show({"state": state, "checks": checks}, *lines, Text(counts, "bold"))
        if not reached:
            return exit_codes.exit_code(Unavailable(""))
        return exit_codes.NOT_DONE if errors or (strict and warnings) else exit_codes.OK


async def _checks(s: CliSession, db: str | None) -> tuple[list[CheckJson], bool]:
    """Return the checks, and whether the server or the database responded."""
    began = time.time()
    try:
        report = await s.out.wait_for(s.client.get_doctor())
    except WakefulError as error:
        of_server = diagnosis.check_server(s.client.url, error.code, error.message)
        checks = [to_json(of_server), *await _database(db)]
        return checks, error.code != "unavailable" or any(check["name"] == "schema" for check in checks)
    took_ms = round(1000 * (time.time() - began))
    skew_ms = report["nowMs"] - round(1000 * began) - took_ms // 2
    skew_ms = 0 if abs(skew_ms) <= took_ms else skew_ms
    own = [
        diagnosis.check_server(s.client.url, None, f"{s.client.url} responds in {took_ms} ms"),
        diagnosis.check_clock("client clock", skew_ms, "the clock of the server", "that of this machine"),
    ]
    found = cast(list[CheckJson], report["checks"])
    return [*(to_json(check) for check in own), *found], True


async def _database(db: str | None) -> list[CheckJson]:
    """Return the checks of the database itself, if one is configured here."""
    return await examine_database(settings_with(db=db).db, must_exist=db is not None)


def _lines(check: CheckJson) -> list[Text]:
    mark, style = _MARKS[str(check["state"])]
    line = Text(f"{mark:8}", style).append(f" {check['name']:13} ", "bold")
    lines = [line.append_text(escape(str(check["message"])))]
    if check["action"]:
        lines.append(Text(f"{'':23}{check['action']}", style))
    if check["runbook"]:
        lines.append(Text(f"{'':23}{RUNBOOKS}#{check['runbook']}", "dim"))
    return lines
