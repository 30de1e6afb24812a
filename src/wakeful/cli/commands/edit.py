"""`wakeful edit`: change a job with options, or in an editor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import JobName, now_ms
from wakeful.cli.document_options import document_options, read_document
from wakeful.cli.editor import EditedFile, find_editor
from wakeful.cli.exit_codes import OK
from wakeful.cli.output import print_error
from wakeful.cli.session import Session, command
from wakeful.cli.show.diff import field_lines
from wakeful.cli.show.jobs import secret, status, ticks
from wakeful.client.rest import RestJobs
from wakeful.client.types import JobShape
from wakeful.document.values import camel
from wakeful.errors import FailedPrecondition, InvalidArgument
from wakeful.values.json_value import Json


def register(app: typer.Typer) -> None:
    """Register the commands."""

    @command(
        app,
        "edit",
        examples=(
            "wakeful edit digest",
            "wakeful edit digest --schedule '0 8 * * 1-5' --timeout 5m",
            "wakeful edit ops/backup --label team=ops --unset description",
            "wakeful edit digest --rename daily-digest",
        ),
        panel="Jobs",
        options=document_options(),
    )
    async def edit(
        s: Session,
        /,
        name: JobName,
        unset: Annotated[
            list[str] | None,
            typer.Option("--unset", metavar="FIELD", help="reset a field to its default; may be repeated"),
        ] = None,
        rename: Annotated[str | None, typer.Option("--rename", metavar="NAME", help="the new name")] = None,
        **options: object,
    ) -> int:
        """Change a job: with options, or without them in an editor. Shows what changed and the next ticks.

        The editor is $VISUAL or $EDITOR. It shows the job as YAML. If the text is invalid, the editor opens
        again with the error; a text that is not applied stays in a file. A change by someone else meanwhile
        is detected, and nothing is overwritten. --label adds a label to those that the job has.
        """
        jobs, slug = await s.find_job(name)
        patch = await read_document(options)
        patch |= dict.fromkeys((camel(field) for field in unset or ()), None)
        if rename is not None:
            patch["name"] = rename
        job = await s.out.wait_for(jobs.get(slug))
        if not patch:
            return await _edit_text(s, jobs, job)
        if options.get("label") and isinstance(patch.get("labels"), dict):
            patch["labels"] = {**job["labels"], **cast(dict[str, Json], patch["labels"])}
        saved = await s.out.wait_for(_save(jobs, job, patch))
        _show(s, job, saved)
        return OK


async def _save(jobs: RestJobs, job: JobShape, patch: Mapping[str, Json]) -> JobShape:
    """Change the job if it is still as it was read. `ConcurrentEdit` if it is not."""
    try:
        return await jobs.update(job["id"], patch, if_version=job["revision"])
    except FailedPrecondition as error:
        now = await jobs.get(job["id"])
        if now["revision"] == job["revision"]:
            raise
        raise ConcurrentEdit(
            f"job '{job['name']}' has changed meanwhile: it is at revision {now['revision']}, and you edited "
            f"revision {job['revision']}; nothing was overwritten; edit it again"
        ) from error


class ConcurrentEdit(FailedPrecondition):
    """The job has changed since it was read."""


async def _edit_text(s: Session, jobs: RestJobs, job: JobShape) -> int:
    from wakeful.cli.job_text import job_text, read_job_text
    from wakeful.document.definition import default_fields, editable
    from wakeful.service.auth.masking import masked_document

    editor = find_editor()
    shown = masked_document(cast(Mapping[str, Json], job))
    title = f"Job '{job['name']}' of the agent '{job['agentId']}', revision {job['revision']}."
    text = job_text(title, editable(shown, default_fields()))
    before = read_job_text(text) or {}
    file = EditedFile(job["name"], text)
    saved = await _edited(s, jobs, job, before, file, editor, text)
    file.delete()
    if saved is None:
        s.out.show(job, Text("nothing changed", "yellow"))
    else:
        _show(s, job, saved)
    return OK


async def _edited(
    s: Session,
    jobs: RestJobs,
    job: JobShape,
    before: dict[str, Json],
    file: EditedFile,
    editor: list[str],
    text: str,
) -> JobShape | None:
    """Edit until the server accepts the text; None if nothing changes. If it fails, the text stays."""
    from wakeful.cli.job_text import job_patch, read_job_text, with_error, without_error

    refused = ""
    while True:
        edited = file.edit(editor, text)
        try:
            after = read_job_text(edited)
            patch = None if after is None else job_patch(before, after)
            if not patch:
                return None
            return await s.out.wait_for(_save(jobs, job, patch))
        except BaseException as error:
            if not isinstance(error, InvalidArgument) or without_error(edited) == refused:
                print_error(f"the text was not applied; it is in {file.path}")
                raise
            refused, text = without_error(edited), with_error(edited, error.message)


def _show(s: Session, old: JobShape, new: JobShape) -> None:
    s.out.show(new, *_lines(old, new), *secret(new))
    s.out.warn_of(new.get("warnings", ()))


def _lines(old: JobShape, new: JobShape) -> Iterator[RenderableType]:
    from wakeful.cli.job_text import changed_fields

    fields = changed_fields(cast(Mapping[str, Json], old), cast(Mapping[str, Json], new))
    if not fields:
        yield Text("nothing changed", "yellow")
        return
    yield Text("changed ", "green").append(new["name"], "bold").append(f": {new['explain']}")
    yield from field_lines(fields)
    if not new["enabled"]:
        yield Text("it is ").append(status(new))
    yield from ticks(new, now_ms())
