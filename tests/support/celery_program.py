"""Starts `celery ARGUMENT…` in a session of its own, and writes its process id to the file of TEST_PID.

Tests start it in a fork server that has imported Celery: `tests.support.celery_commands`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from celery.__main__ import main

if __name__ == "__main__":
    os.setsid()
    if "TEST_PID" in os.environ:
        Path(os.environ["TEST_PID"]).write_text(str(os.getpid()))
    sys.path.insert(0, os.getcwd())
    main()
