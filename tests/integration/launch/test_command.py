"""Commands through the engine, and which commands are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SELDOM, NewApp, on_one_store
from tests.support.command_line import Machine, serving
from tests.support.programs import OBEDIENT, STUBBORN, alive, processes, sh
from tests.support.waiting import eventually, in_state, over, runs_of, soon
from wakeful import Command, Function, InvalidArgument, PermissionDenied, Wakeful
from wakeful.launch import process
from wakeful.model import Run
from wakeful.service.auth.access import LOCAL, Principal
from wakeful.settings import Settings

ALL = ("*",)
ONCE: Any = {"max_attempts": 1}
AT_ONCE: Any = {"base": "1ms", "max": "1ms"}
WRITER = Principal("key:1", "agent", "default", "writer")


async def ran(app: Wakeful, name: str) -> Run:
    """Run a job now and wait for the run to finish."""
    return await over(app, (await app.jobs.run(name)).id)


async def test_a_command_reads_the_payload_from_stdin_and_its_stdout_is_the_output(new_app: NewApp):
    async with new_app(commands=["sh"]) as app:
        script = 'cat; echo " $WAKEFUL_JOB $WAKEFUL_TRIGGER $JOB_TO"'
        await app.jobs.create(
            "greet",
            schedule=SELDOM,
            target=Command("sh", "-c", script, env={"JOB_TO": "me"}),
            payload={"to": "Zoë"},
        )
        run = await ran(app, "greet")
    assert (run.state, run.output, run.error) == ("succeeded", '{"to":"Zoë"} greet user me\n', None)


async def test_a_tick_runs_a_command_with_the_message_as_payload(new_app: NewApp):
    async with new_app(commands=ALL) as app:
        await app.jobs.create(
            "greet", schedule="every 1s", start_at=soon(), target=Command("cat"), message="wake up"
        )
        (run, *_) = await eventually(lambda: runs_of(app, "greet"))
        run = await over(app, run.id)
    assert (run.trigger, run.state, run.output) == ("schedule", "succeeded", '{"message":"wake up"}')


async def test_a_failed_command_is_retried_with_the_same_idempotency_key(new_app: NewApp, tmp_path: Path):
    async with new_app(commands=ALL) as app:
        script = 'echo $WAKEFUL_ATTEMPT $WAKEFUL_IDEMPOTENCY_KEY >> "$1"; echo no luck >&2; exit 3'
        await app.jobs.create(
            "a", schedule=SELDOM, target=sh(script, tmp_path / "log"), max_attempts=2, backoff=AT_ONCE
        )
        run = await ran(app, "a")
        dead = await app.runs.dead_letters()
    assert (run.state, run.attempt, run.error, run.reason) == ("failed", 2, "exit 3: no luck", "exit")
    assert [each.id for each in dead] == [run.id]
    key = run.idempotency_key
    assert (tmp_path / "log").read_text() == f"1 {key}\n2 {key}\n"


async def test_a_timeout_kills_the_process_group(
    new_app: NewApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    file = tmp_path / "pids"
    async with new_app(commands=ALL) as app:
        await app.jobs.create("a", schedule=SELDOM, target=sh(STUBBORN, file), timeout="2s", max_attempts=1)
        run = await ran(app, "a")
        pids = await processes(file)
        await eventually(lambda: not any(map(alive, pids)))
    assert (run.state, run.error, run.reason) == ("failed", "timed out after 2 s", "timeout")


async def test_a_stopped_command_can_clean_up(new_app: NewApp, tmp_path: Path):
    file = tmp_path / "pids"
    async with new_app(commands=ALL) as app:
        await app.jobs.create("a", schedule=SELDOM, target=sh(OBEDIENT, file))
        run = await in_state(app, (await app.jobs.run("a")).id, "running")
        pids = await processes(file)
        await app.runs.stop(run.id)
        await eventually(lambda: not any(map(alive, pids)))
        assert (await over(app, run.id)).state == "cancelled"
    assert (tmp_path / "pids.said").exists()


async def test_a_stopping_engine_kills_its_commands_and_releases_their_runs(new_app: NewApp, tmp_path: Path):
    file = tmp_path / "pids"
    async with new_app(commands=ALL) as app:
        await app.jobs.create("a", schedule=SELDOM, target=sh(STUBBORN, file))
        run = await in_state(app, (await app.jobs.run("a")).id, "running")
        pids = await processes(file)
        await app.stop(grace=0.05)
        assert not alive(pids[0])
        await eventually(lambda: not any(map(alive, pids)))
        async with new_app(commands=ALL, config=replace(app._parts.config, lanes={})) as other:
            assert (await other.runs.get(run.id)).state == "retrying"


@on_one_store
async def test_a_stopping_engine_lets_a_command_clean_up(new_app: NewApp, tmp_path: Path):
    file = tmp_path / "pids"
    script = OBEDIENT.replace("echo cleaned up", "sleep 1.3; echo cleaned up")
    async with new_app(commands=ALL) as app:
        await app.jobs.create("a", schedule=SELDOM, target=sh(script, file))
        await in_state(app, (await app.jobs.run("a")).id, "running")
        await processes(file)
        await app.stop(grace=0.05)
    assert (tmp_path / "pids.said").exists()


async def test_a_command_that_is_no_longer_allowed_fails_permanently(new_app: NewApp):
    async with new_app(commands=["true"]) as app:
        await app.jobs.create("a", schedule=SELDOM, target=Command("true"))
        assert (await ran(app, "a")).state == "succeeded"
    async with new_app(commands=["false"]) as app:
        run = await ran(app, "a")
    assert (run.state, run.attempt, run.reason) == ("failed", 1, "not_allowed")
    assert "'true' is not an allowed command" in (run.error or "")


async def test_a_workflow_can_target_a_command(new_app: NewApp):
    async with new_app(commands=ALL) as app:
        await app.services.admin.workflows.put(LOCAL, "default", "w", 1, {"nodes": []})
        target = {"kind": "workflow", "workflowId": "w", "version": 1, "to": sh("cut -c 1-26")}
        await app.jobs.create("flow", schedule=SELDOM, target=target)
        run = await ran(app, "flow")
        assert (run.state, run.output) == ("succeeded", '{"dag":{"nodes":[]},"meta"\n')
        with pytest.raises(InvalidArgument, match="argv is a list"):
            await app.jobs.update("flow", target={**target, "to": {"kind": "command", "argv": "cat"}})


async def test_the_default_target_of_an_agent_can_be_a_command(new_app: NewApp):
    async with new_app(commands=["cat"]) as app:
        with pytest.raises(InvalidArgument, match="'sh' is not an allowed command"):
            await app.services.agents.put(LOCAL, "default", "writer", {"target": sh("true")})
        await app.services.agents.put(
            LOCAL, "default", "writer", {"target": {"kind": "command", "argv": ["cat"]}}
        )
        document = {"name": "note", "schedule": SELDOM, "message": "hello"}
        await app.services.jobs.create(WRITER, "default", "writer", document)  # uses the default target
        run = await app.jobs.of("writer").run("note")
        assert (await over(app, run.id)).output == '{"message":"hello"}'


# --- allowed commands --------------------------------------------------------------------------------


@on_one_store
@pytest.mark.parametrize(
    "fields",
    [
        {"target": {"kind": "command", "argv": ["true"]}},
        {
            "target": {
                "kind": "workflow",
                "workflowId": "w",
                "version": 1,
                "to": {"kind": "command", "argv": ["true"]},
            }
        },
        {
            "target": {"kind": "webhook", "url": "https://example.com"},
            "precheck": {"kind": "command", "argv": ["true"]},
        },
    ],
    ids=["target", "workflow", "precheck"],
)
async def test_an_agent_key_cannot_set_commands_unless_configured(new_app: NewApp, fields: dict[str, Any]):
    document = {"name": "a", "schedule": SELDOM, **fields}
    async with new_app(commands=ALL) as app:
        with pytest.raises(PermissionDenied, match="WAKEFUL_AGENT_TARGETS"):
            await app.services.jobs.create(WRITER, "default", "writer", document)
    kinds = ("webhook", "workflow", "command")
    async with new_app(settings=Settings(commands=ALL, agent_targets=kinds)) as app:
        await app.services.jobs.create(WRITER, "default", "writer", document)


@on_one_store
async def test_by_default_no_commands_are_allowed(new_app: NewApp):
    async with new_app() as app:
        with pytest.raises(InvalidArgument, match="target: no commands are allowed; the operator"):
            await app.jobs.create("a", schedule=SELDOM, target=Command("true"))


@on_one_store
async def test_allowed_commands_are_configurable_and_an_invalid_setting_is_rejected(new_app: NewApp):
    async with new_app(settings=Settings(commands=("true", "/opt/jobs/*"))) as app:
        await app.jobs.create("a", schedule=SELDOM, target=Command("true"))
        with pytest.raises(InvalidArgument, match="not an allowed command"):
            await app.jobs.create("b", schedule=SELDOM, target=Command("/opt/jobs/../../bin/sh"))
    with pytest.raises(InvalidArgument, match=r"WAKEFUL_COMMANDS: 'bin/sh' is not a command"):
        new_app(settings=Settings(commands=("bin/sh",)))


async def test_environment_names_that_are_no_longer_allowed_fail_the_launch_permanently(new_app: NewApp):
    sentence = "env: a job cannot set 'BASH_ENV'; the operator allows JOB_*, and more by WAKEFUL_COMMAND_ENV"
    target = sh("echo ran", env={"BASH_ENV": "/tmp/code"})
    async with new_app(commands=ALL, command_env=["BASH_*"]) as app:
        await app.jobs.create("a", schedule=SELDOM, target=target)
        await app.jobs.create("b", schedule=SELDOM, target=Command("true"))
        assert (await ran(app, "a")).output == "ran\n"
    async with new_app(commands=ALL) as app:
        run = await ran(app, "a")
        assert (run.state, run.attempt, run.reason, run.error) == ("failed", 1, "not_allowed", sentence)
        for fields in ({"target": target}, {"target": Command("true"), "precheck": target}):
            with pytest.raises(InvalidArgument, match=re.escape(sentence)):
                await app.jobs.create("c", schedule=SELDOM, **fields)
            with pytest.raises(InvalidArgument, match=re.escape(sentence)):
                await app.jobs.update("b", **fields)


@on_one_store
async def test_environment_names_that_jobs_may_set_are_configurable(new_app: NewApp):
    settings = Settings(commands=ALL, command_env=("TO",))
    async with new_app(settings=settings) as app:
        await app.jobs.create("a", schedule=SELDOM, target=sh("echo $TO", env={"TO": "me"}))
        assert (await ran(app, "a")).output == "me\n"
    with pytest.raises(InvalidArgument, match="WAKEFUL_COMMAND_ENV: 'A=B' is not the name"):
        new_app(settings=Settings(command_env=("A=B",)))


# --- prechecks ---------------------------------------------------------------------------------------


async def test_a_precheck_command_skips_a_run(new_app: NewApp, tmp_path: Path):
    inbox = tmp_path / "inbox"
    app = new_app(commands=ALL)
    read: list[str] = []

    @app.function("read")
    async def read_mail() -> None:
        read.append("read")

    async with app:
        await app.jobs.create(
            "mail",
            schedule="every 1s",
            start_at=soon(),
            target=Function("read"),
            precheck=sh('test -s "$1" || { echo the inbox is empty; exit 1; }', inbox, timeoutMs=5000),
        )
        (first, *_) = await eventually(lambda: runs_of(app, "mail"))
        first = await over(app, first.id)
        assert (first.state, first.reason, first.output) == ("skipped", "precheck", "the inbox is empty")
        assert read == []
        inbox.write_text("a letter")
        await eventually(lambda: read)


@on_one_store
async def test_a_precheck_command_that_fails_or_times_out_fails_the_run(
    new_app: NewApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    file = tmp_path / "pids"
    async with new_app(commands=ALL) as app:
        for name, precheck in {
            "broken": sh("echo no server >&2; exit 2"),
            "slow": sh(STUBBORN, file, timeoutMs=700),
        }.items():
            await app.jobs.create(
                name, schedule="in 1s", target=Command("true"), precheck=precheck, max_attempts=1
            )
        (broken,) = await eventually(lambda: runs_of(app, "broken"))
        (slow,) = await eventually(lambda: runs_of(app, "slow"))
        broken, slow = await over(app, broken.id), await over(app, slow.id)
        pids = await processes(file)
        await eventually(lambda: not any(map(alive, pids)))
    assert (broken.state, broken.reason) == (slow.state, slow.reason) == ("failed", "precheck_failed")
    assert broken.error == "precheck: exit 2: no server"
    assert slow.error == "precheck: no answer within 0.7 s"


# --- the command line --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    home = tmp_path_factory.mktemp("commands")
    (home / "wakeful.toml").write_text('commands = ["printf", "/bin/sh"]\n')
    with serving(home) as machine:
        yield machine


def test_a_command_is_added_from_the_command_line(here: Machine):
    said = here.wakeful("add", "greet", "-s", SELDOM, "--command", "printf '%s, %s' 'good  morning' \"you\"")
    assert (said.code, said.err) == (0, "")
    run = here.wakeful("run", "greet", "--wait", "--json").json
    assert (run["state"], run["output"]) == ("succeeded", "good  morning, you")
    assert "command printf" in here.wakeful("show", "greet").out


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("printf 'a", "--command: No closing quotation"),
        ("  ", "--command: it is empty"),
        ("printf a | sort", "--command: it runs without a shell, so | would be an argument"),
        ("printf a && printf b", "so && would be an argument"),
        ("rsync -a /a /b", "target: 'rsync' is not an allowed command"),
    ],
)
def test_an_invalid_command_is_rejected(here: Machine, command: str, why: str):
    said = here.wakeful("add", "bad", "-s", SELDOM, "--command", command)
    assert said.code == 2
    assert why in said.err


def test_a_job_has_one_target(here: Machine):
    said = here.wakeful("add", "two", "-s", SELDOM, "--command", "printf a", "--function", "f")
    assert "--function and --command are 2 targets; give one of them" in said.err


def test_crontab_lines_run_as_in_cron(here: Machine):
    crontab = (
        "GREETING=hello\n"
        "0 9 * * * root echo $GREETING | tr a-z A-Z\n"
        "@daily me cat; echo that was all # of it%Dear all,%it's me\n"
    )
    options = ("--as-commands", "--user-field", "--agent", "cron", "--json")
    said = here.wakeful("import", "crontab", *options, stdin=crontab)
    assert said.code == 0
    names = [job["name"] for job in said.json["jobs"]]
    assert [remark["why"] for remark in said.json["notes"]] == [
        "runs as the server's user, not as 'root'",
        "runs as the server's user, not as 'me'",
    ]
    runs = [here.wakeful("run", f"cron/{name}", "--wait", "--json").json for name in names]
    assert [run["output"] for run in runs] == ["HELLO\n", "Dear all,\nit's me\nthat was all\n"]
    job = here.wakeful("show", f"cron/{names[0]}", "--json").json
    assert job["target"] == {
        "kind": "command",
        "argv": ["/bin/sh", "-c", "export GREETING=hello\necho $GREETING | tr a-z A-Z"],
    }
    assert job["payload"] is None


def test_a_crontab_import_takes_one_target(here: Machine):
    said = here.wakeful("import", "crontab", "--as-commands", "--url", "https://a.example", stdin="")
    assert said.code == 2
    assert "--url, --target and --as-commands" in said.err
