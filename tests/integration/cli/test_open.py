"""`wakeful open`, and the sign-in links that `serve --dev` and `demo` print at start."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tests.support.command_line import Machine, first_json
from tests.support.waiting import PATIENCE

LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/sign-in#(wl_[\w-]{43})")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: object) -> None:
        return None


def _signed_in(link: str) -> bool:
    """Use a link as the sign-in page does."""
    found = LINK.fullmatch(link)
    assert found is not None, link
    form = urllib.parse.urlencode({"key": found[2]}).encode()
    try:
        urllib.request.build_opener(_Stay).open(f"{found[1]}/sign-in", form, PATIENCE)
    except urllib.error.HTTPError as response:
        response.close()
        return response.code == 303 and "wakeful_session=" in response.headers["set-cookie"]
    return False


def test_links_of_the_command_line_sign_in_once(tmp_path: Path):
    log = tmp_path / "log"
    process = Machine(tmp_path).start(
        "serve", "--dev", "--port", "0", "--db", str(tmp_path / "a.db"), "--json"
    )
    try:
        started = first_json(process)
        machine = Machine(tmp_path, started["url"])
        assert _signed_in(started["signInUrl"])
        assert not _signed_in(started["signInUrl"])

        printed = machine.wakeful("open")
        assert (printed.code, printed.err) == (0, "")
        link, note = printed.out.splitlines()
        assert note == "it works once, for 5 minutes"
        assert _signed_in(link)
        as_json = machine.wakeful("open", "--json").json
        assert sorted(as_json) == ["expiresAt", "url"]
        assert _signed_in(as_json["url"])

        opened = tmp_path / "opened"
        script = tmp_path / "browser"
        script.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
        script.chmod(0o755)
        assert machine.wakeful("open", "--browser", BROWSER=str(script)).code == 0
        assert LINK.fullmatch(opened.read_text().strip())

        assert machine.wakeful("open", WAKEFUL_KEY="wk_" + "x" * 43).code == 4
        assert "wl_" not in log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 0, log.read_text()


def test_the_demo_prints_a_link_on_one_line(tmp_path: Path):
    result = Machine(tmp_path).on_a_terminal("demo", "--port", "0", "--runs", "1", columns=40)
    assert result.code == 0, result
    assert re.search(rf"\n  {LINK.pattern}\r\n", result.out)
