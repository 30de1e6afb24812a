"""The key that a server leaves for the command line of its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from wakeful.client.api_key_file import key_file, read_key, store_key
from wakeful.errors import FailedPrecondition, InvalidArgument

URL = "http://127.0.0.1:9253"


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def test_a_stored_key_is_found_under_every_name_of_this_machine(here: dict[str, str]):
    store_key("http://0.0.0.0:9253", "wk_1", here)

    assert read_key(URL, here) == read_key("http://localhost:9253/", here) == "wk_1"


def test_each_server_has_its_own_key(here: dict[str, str]):
    store_key(URL, "wk_1", here)

    assert read_key("http://127.0.0.1:9254", here) is None
    assert read_key("https://example.com", here) is None


def test_the_key_file_is_readable_only_by_its_owner(here: dict[str, str]):
    path = store_key(URL, "wk_1", here)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_existing_key_is_kept_when_a_new_one_is_stored(here: dict[str, str]):
    store_key(URL, "wk_1", here)
    path = store_key(URL, "wk_2", here)

    assert read_key(URL, here) == "wk_2"
    assert path.with_name(f"{path.name}.old").read_text() == "wk_1\n"


def test_the_location_can_be_set(tmp_path: Path):
    place = {"WAKEFUL_KEY_FILE": str(tmp_path / "key")}
    store_key(URL, "wk_1", place)

    assert (tmp_path / "key").read_text() == "wk_1\n"
    assert read_key("https://elsewhere.example", place) == "wk_1"


def test_a_location_that_cannot_be_written_is_named_in_the_error(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(FailedPrecondition, match="WAKEFUL_KEY_FILE"):
        store_key(URL, "wk_1", {"XDG_CONFIG_HOME": str(tmp_path / "file")})


def test_a_relative_config_home_is_ignored(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/me")

    assert key_file(URL, {"XDG_CONFIG_HOME": "here"}) == Path("/home/me/.config/wakeful/keys/127.0.0.1-9253")


@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://[::1", "http://a:port"])
def test_an_invalid_address_is_refused(url: str):
    with pytest.raises(InvalidArgument, match="not the address"):
        key_file(url, {"XDG_CONFIG_HOME": "/x"})
