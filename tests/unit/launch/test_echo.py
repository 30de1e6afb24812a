"""The target echo: a run succeeds at once with what it carries."""

from __future__ import annotations

import pytest

from wakeful.errors import InvalidArgument
from wakeful.launch.echo import ECHO, EchoLauncher
from wakeful.launch.port import MAX_OUTPUT, Launch
from wakeful.run.outcome import Succeeded


def launch(payload: str | None) -> Launch:
    return Launch("r", "j", "i", "default", "default", payload, 0, 0, 1, "schedule", "key", ECHO)


@pytest.mark.parametrize(
    ("payload", "output"),
    [
        ('{"message":"good morning"}', "good morning"),
        ('{"message":"good morning","to":"me"}', '{"message":"good morning","to":"me"}'),
        ('{"message":1}', '{"message":1}'),
        ("[1,2]", "[1,2]"),
        (None, None),
    ],
)
async def test_the_output_is_the_message_or_the_payload(payload: str | None, output: str | None):
    assert await EchoLauncher().start(launch(payload)) == Succeeded(output)


async def test_a_long_message_is_cut_like_any_output():
    outcome = await EchoLauncher().start(launch('{"message":"' + "a" * 2 * MAX_OUTPUT + '"}'))
    assert isinstance(outcome, Succeeded)
    assert outcome.output is not None
    assert len(outcome.output.encode()) <= MAX_OUTPUT


def test_an_echo_target_has_no_fields():
    EchoLauncher().check(ECHO)
    with pytest.raises(InvalidArgument, match="an echo target has no field 'url'"):
        EchoLauncher().check({"kind": "echo", "url": "https://a.example"})
