"""The server and the browser show the same distances of times."""

from __future__ import annotations

import json
import subprocess

from tests.support.paths import ROOT
from tests.support.tools import tool
from wakeful.dashboard.formats import relative

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
#: Instants around each change of unit and of rounding, in the past and in the future.
_INSTANTS = [
    sign * (size * amount + change)
    for size in (_SECOND, _MINUTE, _HOUR, _DAY)
    for amount in (0, 1, 23, 24, 47, 48, 59, 60)
    for change in (-size // 2 - 1, -size // 2, -1, 0, 1, size // 2 - 1, size // 2)
    for sign in (-1, 1)
]


def test_the_script_of_the_pages_writes_distances_as_the_server_does():
    program = (
        "globalThis.document = { querySelector: () => null };"  # what it imports reads the page
        f"const times = await import({json.dumps((ROOT / 'src/wakeful/dashboard/static/time.js').as_uri())});"
        f"console.log(JSON.stringify({json.dumps(_INSTANTS)}.map((ms) => times.relative(ms, 0))));"
    )
    done = subprocess.run(
        [tool("node"), "--input-type=module", "--eval", program], check=True, capture_output=True, text=True
    )

    assert json.loads(done.stdout) == [relative(ms, 0) for ms in _INSTANTS]
