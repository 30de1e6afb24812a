"""`wakeful import`: create jobs from the schedules of other systems."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wakeful.cli.importers.run import ImportOptions, import_options
from wakeful.cli.session import CliSession, command, command_group


def register(app: typer.Typer) -> None:
    """Register the commands."""
    group = command_group(app, "import", "Import jobs from cron, systemd, OpenClaw or Hermes.", panel="Files")

    @command(
        group,
        "crontab",
        examples=(
            "wakeful import crontab /etc/crontab /etc/cron.d --dry-run",
            "wakeful import crontab - --source web1-ops --paused",
            "wakeful import crontab jobs.txt --url https://example.com/hook",
        ),
        options=import_options(commands=True),
    )
    async def crontab(
        s: CliSession,
        /,
        files: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[FILE|DIRECTORY|-]...",
                help="crontabs, and directories such as /etc/cron.d; - is stdin, the default",
            ),
        ] = None,
        user_field: Annotated[
            bool | None,
            typer.Option(
                "--user-field/--no-user-field", help="a system crontab, with a user before the command"
            ),
        ] = None,
        **given: Any,
    ) -> int:
        """Create a job for each line of a crontab. Lines that cannot become jobs are listed with the reason.

        A job's payload is {"command": …}, with "stdin", "env" and "user" if the line has them.
        With --as-commands there is no payload: the server runs the line itself.
        Importing a file again changes only the jobs of that file. Jobs of other files keep their names.
        """
        from wakeful.cli.importers.crontab import read_crontabs
        from wakeful.cli.importers.entries import STDIN
        from wakeful.cli.importers.run import run_import

        options = ImportOptions(**given)
        reading = await read_crontabs(files or [STDIN], user_field)
        return await run_import(s, reading, "crontab", options)

    @command(
        group,
        "systemd",
        examples=(
            "wakeful import systemd --dry-run",
            "wakeful import systemd backup.timer backup.service --as-commands --paused",
        ),
        options=import_options(commands=True),
    )
    async def systemd(
        s: CliSession,
        /,
        files: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[FILE|DIRECTORY]...",
                help="timers and services, and directories of them "
                "(default: /etc/systemd/system and ~/.config/systemd/user)",
            ),
        ] = None,
        **given: Any,
    ) -> int:
        """Create jobs from the timers of systemd and their services, with drop-ins.

        Each OnCalendar and OnUnitActiveSec of a timer is a job.
        A job's payload is {"command": …}, with "user", "cwd" and "env" if the service has them.
        With --as-commands there is no payload: the server runs the program itself.
        What cannot be converted is listed, setting by setting.
        """
        from asyncio import to_thread

        from wakeful.cli.importers.run import run_import
        from wakeful.cli.importers.systemd_timers import read_units

        options = ImportOptions(**given)
        return await run_import(s, await to_thread(read_units, files or ()), "systemd", options)

    @command(
        group,
        "openclaw",
        examples=(
            "wakeful import openclaw ~/.openclaw/cron/jobs.json --dry-run",
            "wakeful import openclaw jobs.json --paused --url https://example.com/agent",
        ),
        options=import_options(commands=False),
    )
    async def openclaw(
        s: CliSession,
        /,
        file: Annotated[
            str, typer.Argument(metavar="FILE|-", help="the jobs.json of OpenClaw; - is stdin")
        ] = "~/.openclaw/cron/jobs.json",
        **given: Any,
    ) -> int:
        """Create jobs from the cron store of OpenClaw: schedule, message, delivery, timeout and pause.

        The jobs have the target of their agent, unless --url or --target gives another.
        A job goes to its agent there, unless --agent names another.
        What cannot be converted is listed, field by field.
        """
        from wakeful.cli.importers.agent_jobs import read_openclaw, read_store_file
        from wakeful.cli.importers.run import run_import

        options = ImportOptions(**given)
        return await run_import(s, await read_store_file(file, read_openclaw), "openclaw", options)

    @command(
        group,
        "hermes",
        examples=(
            "wakeful import hermes ~/.hermes/cron/jobs.json --dry-run",
            "wakeful import hermes jobs.json --paused --url https://example.com/agent",
        ),
        options=import_options(commands=False),
    )
    async def hermes(
        s: CliSession,
        /,
        file: Annotated[
            str, typer.Argument(metavar="FILE|-", help="the jobs.json of Hermes; - is stdin")
        ] = "~/.hermes/cron/jobs.json",
        **given: Any,
    ) -> int:
        """Create jobs from the cron store of Hermes: schedule, message, delivery, timeout and pause.

        The jobs have the target of their agent, unless --url or --target gives another.
        What cannot be converted is listed, field by field.
        """
        from wakeful.cli.importers.agent_jobs import read_hermes, read_store_file
        from wakeful.cli.importers.run import run_import

        options = ImportOptions(**given)
        return await run_import(s, await read_store_file(file, read_hermes), "hermes", options)
