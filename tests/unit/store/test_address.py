"""No message shows the password of a database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from wakeful import InvalidArgument, Unavailable, Wakeful
from wakeful.cli.serve_options import database_text
from wakeful.settings import Settings
from wakeful.store.address import mask_address
from wakeful.store.connect import store_at
from wakeful.store.sqlite import SqliteStore

#: Each has the password `hunter`, `12` and `34`, or parts of it, where a parser may not expect them.
REFUSED = [
    "mysql://ada:hunter@db.example/main",
    "mysql://ada:hun/ter@db.example/main",
    "mysql://ada:12/hunter@db.example/main",
    "mysql://ada:12?hunter@db.example/main",
    "mysql://db.example/main?password=hunter",
    "postgresql+asyncpg://ada:hunter@db.example/main",
    "ada:hunter@db.example",
    "postgresql://ada:hun/ter@db.example/main",
    "postgresql://ada:hun#ter@db.example/main",
    "postgresql://ada:hun?ter@db.example/main",
    "postgresql://ada:hun[ter@db.example/main",
    "postgresql://ada:12/hunter@db.example/main",
    "postgresql://ada:hunter@db.example:hunter/main",
]


@pytest.mark.parametrize("url", REFUSED)
def test_a_refused_address_is_not_shown_with_its_password(url: str):
    with pytest.raises(InvalidArgument) as error:
        store_at(url)
    said = f"{error.value.message} {database_text(Settings(db=url), None)}"
    assert not [part for part in ("hun", "ter", "12") if part in said], said


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://ada:hunter@db.example:5432/main?sslmode=require",
            "postgresql://ada@db.example:5432/main",
        ),
        ("postgresql://ada:hunter@one:5432,two:5433/main", "postgresql://ada@one:5432,two:5433/main"),
        ("postgresql://ada:hunter@[::1]:5432/main", "postgresql://ada@[::1]:5432/main"),
        ("postgresql:///main?host=/run/postgresql&password=hunter", "postgresql:///main"),
        ("postgresql://ada%40corp:hun%2Fter@db.example/main", "postgresql://ada%40corp@db.example/main"),
        ("sqlite:////var/lib/wakeful@home.db", "sqlite:////var/lib/wakeful@home.db"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str):
    assert mask_address(url) == shown
    store_at(url)


def test_an_address_without_a_path_is_not_a_database_in_memory():
    for url in ("sqlite:///", "sqlite:/// "):
        with pytest.raises(InvalidArgument, match="names no file"):
            store_at(url)
    store_at("sqlite://")


async def test_a_database_that_does_not_answer_is_named_without_its_password():
    with pytest.raises(Unavailable) as error:
        async with Wakeful("postgresql://ada:hunter@127.0.0.1:1/main?password=hunter", secret_key="k"):
            pass
    assert "127.0.0.1" in error.value.message
    assert "hunter" not in error.value.message


@pytest.mark.skipif(os.name != "posix", reason="permissions")
async def test_only_the_owner_can_read_the_files_of_a_database(tmp_path: Path):
    before = os.umask(0o000)
    try:
        async with Wakeful(f"sqlite:///{tmp_path}/a.db", secret_key="k") as app:
            await app.jobs.create("a", schedule="@yearly", target={"kind": "pull"})
            files = {each.name: stat.S_IMODE(each.stat().st_mode) for each in os.scandir(tmp_path)}
    finally:
        os.umask(before)
    assert files == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600}


@pytest.mark.skipif(os.name != "posix", reason="permissions")
async def test_a_file_that_others_can_read_is_kept_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    file = tmp_path / "a.db"
    file.touch(0o640)
    file.chmod(0o640)
    for mode in (0o640, 0o600):
        file.chmod(mode)
        caplog.clear()
        store = SqliteStore(str(file))
        await store.open()
        await store.close()
        assert stat.S_IMODE(file.stat().st_mode) == mode
        assert ("database.readable_by_others" in caplog.text) == (mode == 0o640)
