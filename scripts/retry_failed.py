"""Run the tests that failed in the last run once more, one at a time, if they are few.

A test that passes now is unstable: it is printed, and has to be corrected. Run it after `make test-all`:

    python -m scripts.retry_failed
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_FAILED = Path(".pytest_cache/v/cache/lastfailed")
#: With more failures than this, something is broken.
_MOST = 3


def main() -> int:
    """Return 0 if all of them pass."""
    failed = sorted(json.loads(_FAILED.read_text())) if _FAILED.exists() else []
    if not 0 < len(failed) <= _MOST:
        sys.stdout.write(f"{len(failed)} tests failed: not tried again\n")
        return 1
    sys.stdout.write(f"== pytest: failed tests once more: {len(failed)}\n")
    sys.stdout.flush()
    code = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False).returncode
    if code == 0:
        sys.stdout.write(f"UNSTABLE, failed once: {' '.join(failed)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
