"""`wakeful test-target` and `wakeful hook`: what a job calls, and the URL that runs it."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import RenderableType
from rich.text import Text

from wakeful.cli.arguments import JobName, Payload, Target, job_names, json_argument, now_ms, read_text
from wakeful.cli.exit_codes import NOT_DONE, OK
from wakeful.cli.output import escape, page
from wakeful.cli.session import CliSession, command
from wakeful.cli.times import instant, moment, relative, span
from wakeful.client.types import HookShape, TargetTestShape
from wakeful.errors import InvalidArgument, NotFound
from wakeful.values.json_value import Json
from wakeful.values.plural import plural

#: Fields of a document that exclude each other.
_ALTERNATIVES: Final = (frozenset({"webhookUrl", "target"}), frozenset({"timeout", "timeoutMs"}))


def register(app: typer.Typer) -> None:
    """Register the commands."""

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
        s: CliSession,
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
        agent, slug = await s.find_job(name)
        if delete:
            await s.out.wait_for(s.client.delete_hook(agent, slug))
            s.out.show({"deleted": slug}, Text(f"the trigger URL of {slug} is deleted", "green"))
            return
        if not rotate and (await s.out.wait_for(s.client.get_job(agent, slug))).get("hook"):
            found = await s.out.wait_for(s.client.get_hook(agent, slug))
            s.out.show(found, *_hook_lines(name, found))
            return
        created = await s.out.wait_for(s.client.create_hook(agent, slug))
        s.out.show(created, *_new_hook(created))

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
        s: CliSession,
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
        target: Target = None,
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
            agent, document = await _job_of_file(s, name, file)
        elif name is not None:
            agent, slug = await s.find_job(name)
            document = {"job": slug}
        elif "webhookUrl" in given or "target" in given:
            agent, document = s.own_agent, {}
        else:
            raise InvalidArgument(
                "give a job, or a target: `wakeful test-target NAME`, or `wakeful test-target --url URL`"
            )
        if message is not None and payload is None:
            given["payload"] = None  # else that of the job is sent
        replaced = {each for fields in _ALTERNATIVES if fields & given.keys() for each in fields}
        document = {field: value for field, value in document.items() if field not in replaced}
        request = s.client.test_target(agent, {**document, **given})
        test = await s.out.wait_for(request, "waiting for the target")
        s.out.show(test, *target_test_page(test))
        return OK if test["ok"] else NOT_DONE


async def _job_of_file(s: CliSession, name: str | None, file: str) -> tuple[str, dict[str, Json]]:
    """Return the agent, and the fields of a job in a file that determine a test.

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
    document = {field: value for field, value in job.document.items() if field in FIELDS}
    try:
        await s.out.wait_for(s.client.get_job(job.agent, job.name))
    except NotFound:
        return job.agent, document
    return job.agent, {**document, "job": job.name}


def target_test_page(test: TargetTestShape) -> list[RenderableType]:
    """Return the result of a test, and the request and the response if one was sent."""
    took = "" if test["durationMs"] is None else f" ({span(test['durationMs'])})"
    message = Text(f"{escape(test['message']).plain}{took}", "green" if test["ok"] else "red")
    lines: list[RenderableType] = [message]
    request, response = test["request"], test["response"]
    if request is not None:
        sent = {"request": f"{request['method']} {request['url']}", **request["headers"]}
        lines += ["", page({**sent, "body": request["body"]})]
    if response is not None:
        received: dict[str, str | Text | None] = {"response": f"HTTP {response['status']}"}
        for name, value in response["headers"]:
            known = received.get(name)
            received[name] = value if known is None else f"{known}, {value}"
        lines += ["", page({**received, "body": response["body"]})]
    if secret := test.get("secret"):
        lines += ["", Text("signed with a secret for this test only: ", "dim").append(secret, "bold")]
    return lines


def _new_hook(hook: HookShape) -> list[RenderableType]:
    """Return the lines that show a new trigger URL."""
    lines: list[RenderableType] = [
        Text("url  ", "bold").append(hook.get("url") or "", "green"),
        Text("     store it: it is not shown again. Everyone who has it can run the job with a POST", "dim"),
    ]
    until = instant(hook["previousUntil"])
    if until is not None:
        lines.append(Text(f"     the URL before it works until {moment(until, None)}", "dim"))
    return lines


def _hook_lines(name: str, hook: HookShape) -> list[Text]:
    created, until = instant(hook["createdAt"]), instant(hook["previousUntil"])
    since = (
        ""
        if created is None
        else f", created {relative(created, now_ms())} by {hook['createdByName'] or hook['createdBy']}"
    )
    lines = [Text(f"{name} has a trigger URL (id {hook['id']}){since}")]
    if until is not None:
        lines.append(Text(f"the URL before it (id {hook['previousId']}) works until {moment(until, None)}"))
    lines.append(Text(f"it is not shown again; a new one: wakeful hook {name} --rotate", "dim"))
    return lines
