"""`wakeful hook`: the trigger URL of a job."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.session import Session, command
from wakeful.cli.show.jobs import new_hook
from wakeful.cli.times import instant, moment, relative
from wakeful.client.types import HookShape
from wakeful.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "hook",
        examples=(
            "wakeful hook deploy",
            "wakeful hook deploy --rotate",
            "wakeful hook deploy --delete",
        ),
        panel="Jobs",
    )
    async def hook(
        s: Session,
        name: JobName,
        rotate: Annotated[
            bool, typer.Option("--rotate", help="replace the URL; the old one works for another day")
        ] = False,
        delete: Annotated[bool, typer.Option("--delete", help="delete the URL, at once")] = False,
    ) -> None:
        """Create the trigger URL of a job: a POST to it runs the job, with the body as payload.

        The URL is shown once. For a job that has one, the command shows since when.
        """
        if rotate and delete:
            raise InvalidArgument("give --rotate or --delete, not both")
        jobs, slug = await s.find_job(name)
        if delete:
            await s.out.wait_for(jobs.delete_hook(slug))
            s.out.show({"deleted": slug}, Text(f"the trigger URL of {slug} is deleted", "green"))
            return
        if not rotate and (await s.out.wait_for(jobs.get(slug))).get("hook"):
            found = await s.out.wait_for(jobs.get_hook(slug))
            s.out.show(found, *_known(name, found))
            return
        created = await s.out.wait_for(jobs.create_hook(slug))
        s.out.show(created, *new_hook(created))


def _known(name: str, hook: HookShape) -> list[Text]:
    created, until = instant(hook["createdAt"]), instant(hook["previousUntil"])
    since = "" if created is None else f", created {relative(created, now_ms())} by {hook['createdBy']}"
    lines = [Text(f"{name} has a trigger URL (id {hook['id']}){since}")]
    if until is not None:
        lines.append(Text(f"the URL before it (id {hook['previousId']}) works until {moment(until, None)}"))
    lines.append(Text(f"it is not shown again; a new one: wakeful hook {name} --rotate", "dim"))
    return lines
