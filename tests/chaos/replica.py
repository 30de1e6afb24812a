"""A replica in its own process: `python -m tests.chaos.replica URL FOLDER NUMBER SKEW_MS`.

Its clock is off by `SKEW_MS` before Wakeful is imported; only the journal uses the real time. It waits for an
unavailable database and stops on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from pathlib import Path


def main(url: str, folder: Path, number: int, skew_ms: int) -> None:
    true_ns, true_s = time.time_ns, time.time
    time.time_ns = lambda: true_ns() + skew_ms * 1_000_000
    time.time = lambda: true_s() + skew_ms / 1000

    from tests.chaos.work import build
    from wakeful.errors import Unavailable

    logging.basicConfig(
        filename=folder / f"replica-{number}.log",
        level=logging.WARNING,
        format=f"%(levelname)s {os.getpid()} %(message)s",
    )
    app = build(url, folder / f"{os.getpid()}.journal", clock_ns=true_ns)

    async def serve() -> None:
        while True:
            try:
                async with app:
                    (folder / f"{os.getpid()}.ready").touch()
                    return await app.serve_forever()
            except Unavailable as error:
                logging.warning("not available: %s", error.message)
                await asyncio.sleep(0.2)

    asyncio.run(serve())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
