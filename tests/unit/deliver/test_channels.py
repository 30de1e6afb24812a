"""Channels, and the parts of long messages.

A recipient cannot change a URL, and nobody sees it. No part is too long, nothing is lost, and lines, words
and characters stay whole.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.deliver.channels import (
    CUT,
    MAX_PARTS,
    ChannelMessage,
    ChannelSender,
    SendResult,
    parse_service,
    split_message,
    url_with_recipient,
)
from wakeful.deliver.transport import capture_logs
from wakeful.errors import InvalidArgument
from wakeful.settings import Settings

SECRET = "Sw0rdf1sh"
MAIL = f"mailto://wakeful:{SECRET}@example.com?to={{to}}"
TELEGRAM = f"tgram://123456789:{SECRET}/{{to}}"
FIXED = f"json://ada:{SECRET}@127.0.0.1:1/{SECRET}"
NASTY = [
    "a/b",
    "a?b=c",
    "a#b",
    "50%",
    "%2F",
    "a@b",
    "a&cc=b",
    "a\nb",
    "a\r\nb: c",
    "a b",
    "grün",
    "{to}",
    ":",
    "'\"",
]
_TEXT = st.text(st.sampled_from("ab \n\r\té👍🏽\u200d\u0301🇩🇪"), max_size=200)


@pytest.mark.parametrize("to", NASTY)
@pytest.mark.parametrize("url", ["tgram://token/{to}/tail?x=1#end", "mailto://u:p@h?x=1&to={to}&y=2#end"])
def test_a_recipient_changes_nothing_but_the_recipient(url: str, to: str):
    given, plain = urlsplit(url_with_recipient(url, to)), urlsplit(url_with_recipient(url, "plain"))
    assert (given.scheme, given.netloc, given.fragment) == (plain.scheme, plain.netloc, plain.fragment)
    assert [unquote(part) for part in given.path.split("/")] == [
        to if part == "plain" else part for part in plain.path.split("/")
    ]
    wanted = {name: [to] if values == ["plain"] else values for name, values in parse_qs(plain.query).items()}
    assert parse_qs(given.query) == wanted


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_recipient_is_encoded_in_the_url(to: str):
    assert not set(url_with_recipient("{to}", to)) & set("/?#&=@:;,+ \r\n\t\\\"'<>")


@pytest.mark.parametrize("to", [".", "..", "...", "a\nb", "\x00", "\x7f", "\u2028", "\ud800", ". ."])
def test_a_recipient_that_could_lead_elsewhere_is_refused(to: str):
    channels = ChannelSender({"hooks": "json://127.0.0.1/hooks/{to}/tail"})
    with pytest.raises(InvalidArgument, match="to: the channel 'hooks' does not take"):
        channels.check("hooks", to)


def test_a_recipient_that_the_service_would_drop_is_refused():
    channels = ChannelSender({"mail": MAIL, "ntfy": "ntfy://example.com/{to}"})
    channels.check("mail", "ada@example.org")
    channels.check("ntfy", "alerts")
    for name, to in [("mail", "ada"), ("ntfy", "a/b"), ("ntfy", "../up")]:
        with pytest.raises(InvalidArgument, match=f"to: the channel '{name}' does not take '{to}'"):
            channels.check(name, to)


def test_a_channel_is_addressed_by_name_and_recipient():
    channels = ChannelSender({"telegram": TELEGRAM, "ops": FIXED})
    channels.check("telegram", "@ada")
    channels.check("ops", None)
    for name, to, said in [
        ("pager", None, "channel: there is no 'pager'; there are ops, telegram"),
        ("telegram", None, "to: the channel 'telegram' needs a recipient"),
        ("ops", "@ada", "to: the channel 'ops' has a fixed recipient"),
    ]:
        with pytest.raises(InvalidArgument, match=said):
            channels.check(name, to)
    with pytest.raises(InvalidArgument, match="channel: there is no 'ops'; none is set"):
        ChannelSender({}).check("ops", None)


@pytest.mark.parametrize(
    "url", [SECRET, f"nothing://{SECRET}", f"tgram://{SECRET}/{{to}}", f"slack://{SECRET}"]
)
def test_a_url_that_apprise_does_not_understand_stops_the_start_and_is_not_shown(
    url: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(1)
    with pytest.raises(InvalidArgument, match="WAKEFUL_CHANNEL_TEAM_OPS: Apprise does not under") as error:
        ChannelSender({"team-ops": url})
    assert error.value.__cause__ is None
    assert SECRET not in str(error.value) + caplog.text


@pytest.mark.parametrize(
    "url", [MAIL, TELEGRAM, "slack://xoxb-1234-1234-4ddbc191d40ee098cbaae6f3523ada2d/#{to}"]
)
def test_a_url_with_a_recipient_to_come_is_understood(url: str):
    assert ChannelSender({"team": url}).names == ["team"]


def test_no_output_contains_a_channel_url(caplog: pytest.LogCaptureFixture):
    caplog.set_level(1)
    channels = ChannelSender({"ops": FIXED, "mail": MAIL})
    why = channels.send("ops", None, ChannelMessage("Title", "Body", "failure"))
    with pytest.raises(InvalidArgument) as error:
        channels.check("mail", "nobody")
    shown = f"{Settings(channels={'ops': FIXED})!r} {channels!r} {why} {error.value!r} {caplog.text}"
    assert SECRET not in shown
    assert why == SendResult("not_sent", "the service could not be reached, or closed the connection")


def test_a_changed_url_does_not_change_the_recipient():
    channels = ChannelSender({"ops": "json://127.0.0.1:1", "mail": MAIL})
    for name, to, said in [
        ("ops", "ada", "to: the channel 'ops' has a fixed recipient"),
        ("mail", None, "to: the channel 'mail' needs a recipient"),
        ("mail", "@ada", "to: the channel 'mail' does not take '@ada'"),
    ]:
        result = channels.send(name, to, ChannelMessage("Title", "Body"))
        assert result.outcome == "not_sent"
        assert result.error.startswith(said)


def test_logs_outside_a_delivery_are_not_redacted(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with capture_logs() as received:
        logging.getLogger("apprise").warning("of %s", SECRET)
        logging.getLogger("urllib3.connectionpool").debug("POST /%s", SECRET)
        logging.getLogger("wakeful.other").warning("this goes on")
    logging.getLogger("apprise").warning("hello again")
    assert received == [f"of {SECRET}"]
    assert [record.message for record in caplog.records] == ["this goes on", "hello again"]


def test_socket_timeouts_are_set_unless_the_url_sets_them():
    for url, timeouts in [
        ("json://127.0.0.1", (10.0, 10.0)),
        ("json://127.0.0.1?cto=2&rto=3", (2.0, 3.0)),
    ]:
        service, _ = parse_service(url, None)
        assert service is not None
        assert service.request_timeout == timeouts


def test_without_apprise_a_channel_is_refused_and_the_start_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    channels = ChannelSender({"ops": FIXED})
    with pytest.raises(InvalidArgument, match=r"channel: .* the extra 'deliver'"):
        channels.check("ops", None)
    result = channels.send("ops", None, ChannelMessage("Title", "Body"))
    assert result.outcome == "not_sent"
    assert "the extra 'deliver'" in result.error


def test_apprise_is_loaded_only_if_there_is_a_channel():
    program = (
        "import sys; from wakeful import Wakeful; from wakeful.settings import Settings\n"
        "def loaded(**channels):\n"
        "    Wakeful('sqlite:///x.db', settings=Settings(channels=channels))\n"
        "    return 'apprise' in sys.modules\n"
        "assert (loaded(), loaded(ops='json://127.0.0.1')) == (False, True)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(_TEXT, st.integers(min_value=12, max_value=40))
def test_parts_fit_and_contain_everything_in_order(text: str, limit: int):
    parts = split_message(text, limit)
    assert all(_utf16(part) <= limit for part in parts)
    assert len(parts) == 1 or all(part.strip() for part in parts)
    if len(parts) < MAX_PARTS:
        assert "".join("".join(parts).split()) == "".join(text.split())
    else:
        assert len(parts) == MAX_PARTS


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("one line\nanother\n", ["one line", "another"]),
        ("one\ntwo\nthree", ["one\ntwo", "three"]),
        ("0123456789\nnext", ["0123456789", "next"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("    indented\n    line", ["    indent", "ed", "    line"]),
        ("first\n  indented", ["first", "  indented"]),
        ("012345678👍", ["012345678", "👍"]),
        ("0123456👩\u200d💻", ["0123456", "👩\u200d💻"]),
        ("012345678e\u0301", ["012345678", "e\u0301"]),
        ("01234567🇩🇪", ["01234567", "🇩🇪"]),
    ],
)
def test_parts_end_at_lines_words_and_characters(text: str, parts: list[str]):
    assert split_message(text, 10) == parts


def test_a_message_of_too_many_parts_is_cut():
    parts = split_message("x" * 160 * 100, 160)
    assert len(parts) == MAX_PARTS
    assert parts[-1].endswith(CUT)
    assert all(len(part) <= 160 for part in parts)
