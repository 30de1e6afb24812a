"""The static files of the dashboard."""

from __future__ import annotations

from wakeful.dashboard.render import asset_url, assets, version


def test_all_files_together_are_small() -> None:
    assert sum(len(asset.content) for asset in assets().values()) < 190_000


def test_the_address_of_a_file_contains_the_version_of_all() -> None:
    assert asset_url("app.css") == f"/assets/{version()}/app.css"


def test_no_file_names_another_host() -> None:
    for name, asset in assets().items():
        text = asset.content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"://" not in text, name
