from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wakeful.errors import FailedPrecondition
from wakeful.launch.secrets import keyring_for


def test_no_file_is_made_before_something_is_sealed(tmp_path: Path):
    keys = keyring_for(None, str(tmp_path / "wakeful.db"))
    assert keys.empty
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_for_its_owner_alone_and_holds_32_random_bytes(tmp_path: Path):
    keyring_for(None, str(tmp_path / "wakeful.db")).seal(b"secret")
    (made,) = tmp_path.iterdir()
    assert made.name == "wakeful.db.key"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert len(made.read_text().strip()) == 44


def test_a_later_process_opens_what_was_sealed(tmp_path: Path):
    database = str(tmp_path / "wakeful.db")
    early = keyring_for(None, database)
    sealed = keyring_for(None, database).seal(b"secret")
    assert keyring_for(None, database).open(sealed) == b"secret"
    assert early.open(sealed) == b"secret"


def test_concurrent_processes_share_one_key(tmp_path: Path):
    database = str(tmp_path / "wakeful.db")
    keyrings = [keyring_for(None, database) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        sealed = list(threads.map(lambda keys: keys.seal(b"secret"), keyrings))
    assert {keys.open(each) for keys in keyrings for each in sealed} == {b"secret"}
    assert [each.name for each in tmp_path.iterdir()] == ["wakeful.db.key"]


def test_a_given_key_seals_and_the_file_still_opens(tmp_path: Path):
    database = str(tmp_path / "wakeful.db")
    before = keyring_for(None, database).seal(b"before")
    keys = keyring_for("a key of my own", database)
    after = keys.seal(b"after")
    assert (keys.open(before), keys.open(after)) == (b"before", b"after")
    with pytest.raises(FailedPrecondition, match="another key"):
        keyring_for(None, database).open(after)


def test_a_given_key_needs_no_file(tmp_path: Path):
    keyring_for("a key of my own", str(tmp_path / "wakeful.db")).seal(b"secret")
    assert list(tmp_path.iterdir()) == []


def test_a_database_in_memory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    keys = keyring_for(None, ":memory:")
    assert keys.open(keys.seal(b"secret")) == b"secret"
    assert list(tmp_path.iterdir()) == []


def test_the_file_stays_where_it_is_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    keys = keyring_for(None, "wakeful.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    keys.seal(b"secret")
    assert (tmp_path / "wakeful.db.key").exists()


def test_without_a_key_the_error_names_the_setting():
    with pytest.raises(FailedPrecondition, match="WAKEFUL_SECRET_KEY is not set"):
        keyring_for(None, None).seal(b"secret")


def test_an_unwritable_directory_is_named_with_the_setting(tmp_path: Path):
    with pytest.raises(FailedPrecondition, match="set WAKEFUL_SECRET_KEY"):
        keyring_for(None, str(tmp_path / "missing" / "wakeful.db")).seal(b"secret")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe"])
def test_a_file_that_holds_no_key_is_named_and_left_alone(tmp_path: Path, content: bytes):
    path = tmp_path / "wakeful.db.key"
    path.write_bytes(content)
    with pytest.raises(FailedPrecondition, match=r"wakeful\.db\.key"):
        keyring_for(None, str(tmp_path / "wakeful.db")).seal(b"secret")
    assert path.read_bytes() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_named(tmp_path: Path):
    path = tmp_path / "wakeful.db.key"
    path.write_text("key")
    path.chmod(0)
    with pytest.raises(FailedPrecondition, match="cannot be read"):
        keyring_for(None, str(tmp_path / "wakeful.db")).seal(b"secret")
