"""Where the settings of a process come from, and that none shows a secret."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from wakeful.service.admin.settings import DESCRIPTIONS, SettingState, describe
from wakeful.settings import Settings, read_settings

SECRET = "Sw0rdf1sh"


def _states(settings: Settings, environment: dict[str, str], file: Path) -> dict[str, SettingState]:
    return {state.name: state for state in describe(settings, environment, file)}


def test_every_setting_has_a_description() -> None:
    assert DESCRIPTIONS.keys() == {field.name for field in fields(Settings)}


def test_the_source_is_where_the_same_value_stands(tmp_path: Path) -> None:
    file = tmp_path / "wakeful.toml"
    file.write_text('tick_ms = 500\nport = 99\nlane_night_shift = 5\ncommands = ["df", "rsync"]\n')
    environment = {"WAKEFUL_PORT": "100", "WAKEFUL_HOST": "0.0.0.0", "WAKEFUL_LANE_DAY": "2"}
    settings = replace(read_settings(environment, file), host="::1", retention_days=7)
    found = _states(settings, environment, file)
    assert {name: (found[name].value, found[name].source) for name in (
        "WAKEFUL_TICK_MS", "WAKEFUL_PORT", "WAKEFUL_HOST", "WAKEFUL_RETENTION_DAYS", "WAKEFUL_PING_MS",
        "WAKEFUL_LANE_NIGHT_SHIFT", "WAKEFUL_LANE_DAY", "WAKEFUL_COMMANDS",
    )} == {
        "WAKEFUL_TICK_MS": ("500", "file"),
        "WAKEFUL_PORT": ("100", "environment"),
        "WAKEFUL_HOST": ("::1", "option"),
        "WAKEFUL_RETENTION_DAYS": ("7", "option"),
        "WAKEFUL_PING_MS": ("60000", "default"),
        "WAKEFUL_LANE_NIGHT_SHIFT": ("5", "file"),
        "WAKEFUL_LANE_DAY": ("2", "environment"),
        "WAKEFUL_COMMANDS": ("df,rsync", "file"),
    }  # fmt: skip


def test_no_setting_shows_a_secret(tmp_path: Path) -> None:
    environment = {
        "WAKEFUL_DB": f"postgresql://ada:{SECRET}@db.example/main?password={SECRET}",
        "WAKEFUL_SECRET_KEY": SECRET,
        "WAKEFUL_JWT_SECRET": SECRET,
        "WAKEFUL_JWKS_URL": f"https://example.com/{SECRET}",
        "WAKEFUL_METRICS_KEY": SECRET,
        "WAKEFUL_PING_URL": f"https://example.com/{SECRET}",
        "WAKEFUL_ADMIN_KEY": f"wk_{SECRET:x<43}",
        "WAKEFUL_CHANNEL_OPS": f"slack://{SECRET}",
        "WAKEFUL_CHAT_KEY_OPENAI": SECRET,
    }
    found = _states(read_settings(environment), environment, tmp_path / "wakeful.toml")
    assert SECRET not in repr(found)
    for name in environment:
        assert found[name].is_set
        assert found[name].source == "environment"


def test_a_file_that_was_broken_since_the_start_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "wakeful.toml"
    file.write_text("tick_ms = [")
    assert _states(Settings(tick_ms=500), {}, file)["WAKEFUL_TICK_MS"].source == "option"
