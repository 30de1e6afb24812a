"""Commands as they are run: real programs, good and bad, and nothing of them left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.programs import OBEDIENT, STUBBORN, alive, command_launcher, processes, sh, under_way
from tests.support.waiting import PATIENCE, eventually
from tests.unit.launch.launches import launch
from wakeful.job import Json
from wakeful.launch import process
from wakeful.launch.command import CommandLauncher
from wakeful.launch.command_allowlist import CommandAllowlist
from wakeful.launch.command_environment import EnvironmentAllowlist
from wakeful.launch.port import MAX_OUTPUT
from wakeful.launch.precheck import PrecheckResult
from wakeful.outcome import Failed, Outcome, Skipped, Succeeded


@pytest.fixture
async def launcher() -> AsyncIterator[CommandLauncher]:
    launcher = command_launcher("*")
    await launcher.open()
    yield launcher
    await launcher.close()


async def run(
    launcher: CommandLauncher, script: str, *arguments: object, payload: str | None = None, **fields: Json
) -> Outcome:
    """Run a script to its end."""
    async with asyncio.timeout(PATIENCE):
        return await launcher.start(launch(sh(script, *arguments, **fields), payload))


def error(outcome: Outcome | PrecheckResult) -> str:
    assert isinstance(outcome, Failed)
    return outcome.error


# --- what it is given --------------------------------------------------------------------------------


async def test_it_reads_the_payload_and_what_it_says_is_the_output(launcher: CommandLauncher):
    payload = '{"to":"Zoë"}'
    assert await run(launcher, "cat", payload=payload) == Succeeded(payload)
    assert await run(launcher, "cat /dev/stdin", payload=payload) == Succeeded(payload)


async def test_without_a_payload_there_is_nothing_to_read(launcher: CommandLauncher):
    assert await run(launcher, "cat") == Succeeded(None)


async def test_no_shell_reads_what_it_is_told(launcher: CommandLauncher):
    target: dict[str, Json] = {"kind": "command", "argv": ["printf", "%s|", "$HOME", "a b", ";", "*", "ü→"]}
    assert await launcher.start(launch(target)) == Succeeded("$HOME|a b|;|*|ü→|")


async def test_it_finds_in_its_environment_which_run_it_is(launcher: CommandLauncher):
    outcome = await launcher.start(launch(sh("env"), attempt=3, scheduled_ms=1_741_392_000_250))
    assert isinstance(outcome, Succeeded)
    said = dict(line.split("=", 1) for line in (outcome.output or "").splitlines())
    assert {name: value for name, value in said.items() if name.startswith("WAKEFUL_")} == {
        "WAKEFUL_RUN_ID": "r1",
        "WAKEFUL_JOB": "digest",
        "WAKEFUL_AGENT": "default",
        "WAKEFUL_WORKSPACE": "default",
        "WAKEFUL_ATTEMPT": "3",
        "WAKEFUL_SCHEDULED_AT": "2025-03-08T00:00:00.250Z",
        "WAKEFUL_IDEMPOTENCY_KEY": "5f" * 32,
        "WAKEFUL_TRIGGER": "schedule",
    }
    assert said["PATH"] == os.environ["PATH"]


async def test_the_secrets_of_the_server_are_not_its_to_see(
    launcher: CommandLauncher, monkeypatch: pytest.MonkeyPatch
):
    for name in ("WAKEFUL_SECRET_KEY", "WAKEFUL_DB", "WAKEFUL_KEY", "WAKEFUL_CHANNEL_OPS", "PGPASSWORD"):
        monkeypatch.setenv(name, "do-not-tell")
    monkeypatch.setenv("JOB_OWN", "the server's")
    outcome = await run(launcher, "env", env={"JOB_TO": "me", "JOB_OWN": "the job's"})
    assert isinstance(outcome, Succeeded)
    lines = (outcome.output or "").splitlines()
    assert "do-not-tell" not in (outcome.output or "")
    assert {"JOB_TO=me", "JOB_OWN=the job's"} <= set(lines)


async def test_it_begins_in_the_directory_that_the_job_names(launcher: CommandLauncher, tmp_path: Path):
    (tmp_path / "here").touch()
    assert await run(launcher, "ls", cwd=str(tmp_path)) == Succeeded("here\n")


async def test_the_path_of_the_job_does_not_choose_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for place in ("good", "evil"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "greet").write_text(f"#!/bin/sh\necho {place}\n")
        (tmp_path / place / "greet").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/good")
    target: dict[str, Json] = {
        "kind": "command",
        "argv": ["greet"],
        "env": {"PATH": f"{tmp_path}/evil"},
        "cwd": f"{tmp_path}/evil",
    }
    launcher = CommandLauncher(CommandAllowlist(["greet"]), EnvironmentAllowlist(["PATH"]))
    assert await launcher.start(launch(target)) == Succeeded("good\n")


async def test_a_program_that_does_not_read_is_no_error(launcher: CommandLauncher):
    payload = '"' + "x" * 65_534 + '"'
    assert await run(launcher, "echo done", payload=payload) == Succeeded("done\n")
    assert await run(launcher, "exec 0<&-; echo done", payload=payload) == Succeeded("done\n")
    assert await run(launcher, "head -c 3", payload=payload) == Succeeded('"xx')


# --- what it says ------------------------------------------------------------------------------------


async def test_a_flood_on_both_pipes_neither_stops_it_nor_fills_the_memory(launcher: CommandLauncher):
    flood = "head -c 50000000 /dev/zero | tr '\\0' %s"
    tracemalloc.start()
    try:
        outcome = await run(
            launcher, f"{flood % 'o'} & {{ {flood % 'e'}; echo; echo the end; }} >&2; wait; echo"
        )
        failed = await run(launcher, f"{{ {flood % 'e'}; echo; echo the end; }} >&2; {flood % 'o'}; exit 1")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome == Succeeded("o" * MAX_OUTPUT)
    assert error(failed) == "exit 1: the end"
    assert peak < 5_000_000


async def test_what_is_cut_off_is_cut_off_between_two_characters(launcher: CommandLauncher):
    outcome = await run(launcher, "printf x; yes ü | tr -d '\\n' | head -c 40001")
    assert outcome == Succeeded("x" + "ü" * ((MAX_OUTPUT - 1) // 2))


async def test_what_no_database_can_keep_is_kept_in_another_form(launcher: CommandLauncher):
    assert await run(launcher, "printf 'a\\000b\\377c'") == Succeeded("a�b�c")


async def test_what_it_used_is_taken_from_what_it_says_in_json(launcher: CommandLauncher):
    said = '{"result": "done", "usage": {"tokens": 1200}}'
    assert await run(launcher, "cat", payload=said) == Succeeded(said, '{"tokens":1200}')


# --- how it ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "exit 3"),
        ("exit 75", "exit 75"),
        ("echo all is well; echo no disk >&2; exit 3", "exit 3: no disk"),
        ("echo no disk; exit 1", "exit 1: no disk"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("echo oh >&2; kill -KILL $$", "killed by SIGKILL: oh"),
    ],
)
async def test_another_end_than_0_is_a_failure_that_may_be_tried_again(
    launcher: CommandLauncher, script: str, said: str
):
    outcome = await run(launcher, script)
    assert error(outcome) == said
    assert isinstance(outcome, Failed)
    assert not outcome.permanent
    # A reason is given, or an attempt after this one would take it that nothing was launched before it.
    assert outcome.reason in ("exit", "killed")


async def test_of_many_lines_the_last_ones_say_why(launcher: CommandLauncher):
    said = error(await run(launcher, "seq 100000 >&2; exit 1"))
    assert said.endswith("\n99999\n100000")
    lines = said.removeprefix("exit 1: ").splitlines()
    assert lines == [str(100_001 - n) for n in range(len(lines), 0, -1)], "whole lines"
    assert 3_000 < len(said) < 4_200


async def test_what_cannot_be_begun_fails_for_good(launcher: CommandLauncher, tmp_path: Path):
    plain = tmp_path / "plain"
    plain.write_text("echo no line says what runs it")
    plain.chmod(0o644)
    cases: list[tuple[dict[str, Json], str]] = [
        ({"argv": ["no-such-program"]}, "there is no program 'no-such-program' on the PATH of the server"),
        ({"argv": ["/no/such"]}, "the program '/no/such' could not be used: No such file or directory"),
        ({"argv": [str(tmp_path)]}, f"the program '{tmp_path}' could not be used: Permission denied"),
        ({"argv": [str(plain)]}, f"the program '{plain}' could not be used: Permission denied"),
        ({"argv": ["true"], "cwd": "/no/such"}, "the directory '/no/such' could not be used: No such file"),
    ]
    for fields, said in cases:
        outcome = await launcher.start(launch({"kind": "command", **fields}))
        assert said in error(outcome)
        assert isinstance(outcome, Failed)
        assert (outcome.permanent, outcome.reason) == (True, "not_found")
    plain.chmod(0o755)
    assert "a script that starts with #!" in error(
        await launcher.start(launch({"kind": "command", "argv": [str(plain)]}))
    )


async def test_what_is_no_longer_allowed_fails_for_good():
    outcome = await command_launcher("false").start(launch({"kind": "command", "argv": ["true"]}))
    assert isinstance(outcome, Failed)
    assert (outcome.permanent, outcome.reason) == (True, "not_allowed")
    wrong = await command_launcher("*").start(launch({"kind": "command", "argv": "true"}))
    assert isinstance(wrong, Failed)
    assert (wrong.permanent, wrong.reason) == (True, "invalid_target")


async def test_many_run_side_by_side(launcher: CommandLauncher):
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(launcher, f"echo {n}; exit {n % 2}")) for n in range(60)]
    assert [task.result() for task in tasks] == [
        Failed(f"exit 1: {n}", reason="exit") if n % 2 else Succeeded(f"{n}\n") for n in range(60)
    ]


# --- what it leaves behind ---------------------------------------------------------------------------


async def test_what_holds_its_pipes_when_it_has_ended_is_ended_too(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "LINGER_S", 0.1)
    file = tmp_path / "pids"
    outcome = await run(launcher, "trap '' TERM; sleep 60 & echo $! > \"$1\"; echo done", file)
    assert outcome == Succeeded("done\n")
    (pid,) = await processes(file)
    await eventually(lambda: not alive(pid))


async def test_what_it_leaves_in_a_session_of_its_own_does_not_hold_the_run(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "LINGER_S", 0.1)
    file = tmp_path / "pids"
    script = 'setsid sh -c \'echo $$ > "$1"; exec sleep 60\' sh "$1" & echo done'
    assert await run(launcher, script, file) == Succeeded("done\n")
    (pid,) = await processes(file)
    os.kill(pid, signal.SIGKILL)


async def test_what_goes_on_without_its_pipes_is_left_alone(launcher: CommandLauncher, tmp_path: Path):
    file = tmp_path / "pids"
    script = 'sleep 60 </dev/null >/dev/null 2>&1 & echo $! > "$1"; echo done'
    assert await run(launcher, script, file) == Succeeded("done\n")
    (pid,) = await processes(file)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


async def test_one_that_is_cancelled_has_time_to_clean_up(launcher: CommandLauncher, tmp_path: Path):
    file = tmp_path / "pids"
    async with under_way(launcher, sh(OBEDIENT, file), file) as (task, pids):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))
    assert (tmp_path / "pids.said").read_text() == "cleaned up\n"


async def test_one_that_takes_no_notice_is_killed_with_its_group(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    file = tmp_path / "pids"
    async with under_way(launcher, sh(STUBBORN, file), file) as (task, pids):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))


async def test_what_outlives_a_program_that_obeyed_is_killed(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    file = tmp_path / "pids"
    script = (
        "sh -c 'trap \"\" TERM; exec >/dev/null 2>&1; while :; do sleep 60; done' &\n"
        'echo $$ $! > "$1.new"; mv "$1.new" "$1"; wait'
    )
    async with under_way(launcher, sh(script, file), file) as (task, pids):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))


async def test_one_that_is_cancelled_twice_leaves_nothing_behind(
    launcher: CommandLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    file = tmp_path / "pids"
    async with under_way(launcher, sh(STUBBORN, file), file) as (task, pids):
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not any(map(alive, pids)))


async def test_one_that_is_cancelled_before_it_has_begun_leaves_nothing_behind(
    launcher: CommandLauncher, tmp_path: Path
):
    file = tmp_path / "pids"
    for turns in range(6):
        task = asyncio.create_task(launcher.start(launch(sh('echo $$ > "$1"; exec sleep 60', file))))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if file.exists() and (said := file.read_text()):
            assert not alive(int(said))


async def test_a_launcher_that_closes_ends_what_is_left_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE_S", 4 * PATIENCE)
    launcher = command_launcher("*")
    file = tmp_path / "pids"
    async with under_way(launcher, sh(STUBBORN, file), file) as (task, pids):
        task.cancel()
        async with asyncio.timeout(PATIENCE):  # and not when its grace is over
            await launcher.close()
        await eventually(lambda: not any(map(alive, pids)))
        with pytest.raises(asyncio.CancelledError):
            await task


# --- as a precheck -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo there is mail", None),
        ("exit 1", Skipped()),
        ("echo no mail; echo not this >&2; exit 1", Skipped("no mail")),
        ("echo no mail >&2; exit 1", Skipped("no mail")),
        ("echo no server >&2; exit 2", Failed("exit 2: no server", reason="exit")),
        ("kill -KILL $$", Failed("killed by SIGKILL", reason="killed")),
    ],
)
async def test_its_exit_code_says_whether_there_is_anything_to_do(
    launcher: CommandLauncher, script: str, answer: PrecheckResult
):
    precheck = {**sh(script), "timeoutMs": 5000}
    assert await launcher.precheck(launch({"kind": "pull"}), precheck) == answer


async def test_whoever_is_asked_knows_it_and_has_a_key_of_its_own(launcher: CommandLauncher):
    precheck = sh('cat; echo " $WAKEFUL_PRECHECK $WAKEFUL_IDEMPOTENCY_KEY"; exit 1')
    answer = await launcher.precheck(launch({"kind": "pull"}, '{"a":1}', key="k"), precheck)
    assert answer == Skipped('{"a":1} 1 k-precheck')


async def test_whoever_may_not_be_asked_is_not():
    answer = await command_launcher().precheck(launch({"kind": "pull"}), sh("true"))
    assert "no commands are allowed" in error(answer)
