"""Every reason that the code gives a run has words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import wakeful
from wakeful.run.planning import Reason
from wakeful.run.run import REASONS, reason_text

ROOT = Path(wakeful.__file__).parent


def test_every_reason_of_a_failed_attempt_has_words() -> None:
    sources = [*(ROOT / "launch").glob("**/*.py"), ROOT / "run/outcome.py"]
    given = {reason for file in sources for reason in re.findall(r'\breason="(\w+)"', file.read_text())}
    assert {"http", "network", "timeout"} < given
    assert given - set(REASONS) == set()


def test_every_reason_of_a_tick_that_did_not_run_has_words() -> None:
    assert set(get_args(Reason)) - set(REASONS) == set()


def test_a_reason_is_a_sentence_part_without_code() -> None:
    for reason in REASONS:
        text = reason_text(reason)
        assert " " in text, reason
        assert "_" not in text, reason
        assert not text.endswith("."), reason
