"""A server with `/mcp` and jobs, which a test kills: `python event_server.py URL FILE`.

It writes its process id, its address and, once, the key of an admin to FILE when it accepts requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from wakeful import EngineConfig, Wakeful
from wakeful.server.http_app import create_app
from wakeful.server.serve import Listening, readiness
from wakeful.settings import Settings

PACE = EngineConfig(tick_ms=100, heartbeat_ms=200, lease_ms=1_500)


async def serve(url: str, ready: Path) -> None:
    """Serve until the process is killed."""
    app = Wakeful(url, config=PACE, grace=0.2, allow_private_targets=True, secret_key="a key for tests")

    @app.function()
    async def work(fails: bool = False) -> str:
        await asyncio.sleep(0.05)
        if fails:
            raise ValueError("the disk is full")
        return "done"

    async with app, Listening(create_app(app.services, ready=readiness(app)), Settings(port=0)) as http:
        key = await app.services.auth.keys.first_key()
        written = ready.with_suffix(".part")
        written.write_text(json.dumps({"pid": os.getpid(), "url": http.url, "key": key}))
        written.rename(ready)
        await app.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
