"""`wakeful test-target`: send a test request to the target of a job or a document."""

from __future__ import annotations

from typing import Annotated, Final, cast

import typer

from wakeful.cli.arguments import Payload, json_argument, read_text
from wakeful.cli.completion import job_names
from wakeful.cli.exit_codes import NOT_DONE, OK
from wakeful.cli.session import Session, command
from wakeful.cli.show.operations import target_test_page
from wakeful.client.operation_types import TargetTestShape
from wakeful.client.rest import RestJobs
from wakeful.errors import InvalidArgument, NotFound
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

#: Fields of a document that exclude each other.
_ALTERNATIVES: Final = (frozenset({"webhookUrl", "target"}), frozenset({"timeout", "timeoutMs"}))


def register(app: typer.Typer) -> None:
    """Register the command."""

    @command(
        app,
        "test-target",
        examples=(
            "wakeful test-target digest",
            "wakeful test-target digest --payload '{\"full\": false}'",
            "wakeful test-target --url https://example.com/hook --message hello",
            "wakeful test-target digest --file jobs.yaml",
        ),
        panel="Jobs",
    )
    async def test_target(
        s: Session,
        name: Annotated[
            str | None,
            typer.Argument(metavar="NAME", autocompletion=job_names, help="the job: name, agent/name or id"),
        ] = None,
        file: Annotated[
            str | None,
            typer.Option(
                "--file", "-f", metavar="FILE", help="a job of this file, which need not be applied"
            ),
        ] = None,
        url: Annotated[str | None, typer.Option("--url", help="call this webhook")] = None,
        target: Annotated[
            str | None, typer.Option("--target", metavar="JSON", help='as in \'{"kind": "pull"}\'')
        ] = None,
        payload: Payload = None,
        message: Annotated[str | None, typer.Option("--message", "-m", help="a text as the payload")] = None,
        wait: Annotated[
            str | None, typer.Option("--timeout", help="wait so long for the response, at most 30s")
        ] = None,
    ) -> int:
        """Test the target of a job, of a job in a file, or one that options give. It is no run.

        A webhook gets one signed request, as of a run; shows the request and the response. Targets of other
        kinds are checked and not launched. Options replace fields of the job. The exit code is 0 only if the
        test succeeds.
        """
        given: dict[str, Json] = {
            "webhookUrl": url,
            "target": await json_argument("--target", target),
            "payload": await json_argument("--payload", payload),
            "message": message,
            "timeout": wait,
        }
        given = {field: value for field, value in given.items() if value is not None}
        if file is not None:
            jobs, document = await _job_of_file(s, name, file)
        elif name is not None:
            jobs, slug = await s.find_job(name)
            document = {"job": slug}
        elif "webhookUrl" in given or "target" in given:
            jobs, document = s.jobs(), {}
        else:
            raise InvalidArgument(
                "give a job, or a target: `wakeful test-target NAME`, or `wakeful test-target --url URL`"
            )
        if message is not None and payload is None:
            given["payload"] = None  # else that of the job is sent
        replaced = {each for fields in _ALTERNATIVES if fields & given.keys() for each in fields}
        document = {field: value for field, value in document.items() if field not in replaced}
        reply = await s.out.wait_for(jobs.test_target({**document, **given}), "waiting for the target")
        test = cast(TargetTestShape, reply)
        s.out.show(test, *target_test_page(test))
        return OK if test["ok"] else NOT_DONE


async def _job_of_file(s: Session, name: str | None, file: str) -> tuple[RestJobs, dict[str, Json]]:
    """Return the jobs of its agent, and the fields of a job in a file that determine a test.

    A job of this name that exists is named in it, because its secret signs the request.
    """
    from wakeful.cli.manifest import read_manifest
    from wakeful.service.jobs.target_tests import FIELDS

    found = read_manifest(await read_text(file), s.agent or "default", file).jobs
    if name is not None:
        found = tuple(each for each in found if name in (each.name, f"{each.agent}/{each.name}"))
    if len(found) != 1:
        raise InvalidArgument(
            f"{file}: it has {plural(len(found), 'job')}{'' if name is None else f' with the name {name}'}; "
            "name one: `wakeful test-target NAME --file FILE`"
        )
    job = found[0]
    jobs = s.jobs(job.agent)
    document = {field: value for field, value in job.document.items() if field in FIELDS}
    try:
        await s.out.wait_for(jobs.get(job.name))
    except NotFound:
        return jobs, document
    return jobs, {**document, "job": job.name}
