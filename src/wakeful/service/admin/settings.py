"""The effective settings of this process, for operators: values with their source, and no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, Literal, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.service.admin.setting_descriptions import DESCRIPTIONS
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.settings import FILE, PREFIX, Settings, read_settings
from wakeful.store.address import shown_address

Source = Literal["environment", "file", "option", "default"]

#: Settings that are credentials, or contain one: only whether they are set is shown.
_SECRET: Final = frozenset(
    {
        "secret_key", "admin_key", "jwt_secret", "jwks_url", "metrics_key", "ping_url", "channels",
        "chat_keys", "celery_broker", "celery_results",
    }
)  # fmt: skip
#: Settings with one variable for each name, by the prefix of the variables.
_BY_NAME: Final = {
    "lanes": "LANE_",
    "channels": "CHANNEL_",
    "chat_keys": "CHAT_KEY_",
    "chat_hosts": "CHAT_HOSTS_",
}


class SettingState(NamedTuple):
    """A setting."""

    #: as in the environment: `WAKEFUL_TICK_MS`
    name: str
    #: its value as text; None: not set, or secret
    value: str | None
    #: `option`: an option of the command line, or code
    source: Source
    secret: bool
    is_set: bool
    description: str


class SettingsService:
    """Shows the settings of this process."""

    def __init__(self, accounts: Accounts, settings: Settings) -> None:
        self._accounts = accounts
        self._settings = settings
        self._states: list[SettingState] | None = None

    async def list(self, principal: Principal, workspace: str) -> list[SettingState]:
        """List the settings, as they were when the process started. Only for keys of all workspaces."""
        await self._accounts.authorize(principal, "operate", workspace)
        if self._states is None:
            self._states = sorted(describe(self._settings, os.environ, FILE))
        return self._states


def describe(settings: Settings, environment: Mapping[str, str], file: Path) -> Iterator[SettingState]:
    """Yield each setting with its source: where the same value stands, else `option` or `default`."""
    said = _read(environment, None)
    written = _read({}, file)
    default = Settings()
    for field in fields(Settings):
        name, value = field.name, getattr(settings, field.name)
        if name in _BY_NAME:
            yield from _named(name, value, getattr(said, name), getattr(written, name))
            continue
        source: Source = "option"
        if PREFIX + name.upper() in environment and getattr(said, name) == value:
            source = "environment"
        elif value == getattr(default, name):
            source = "default"
        elif getattr(written, name) == value:
            source = "file"
        secret = name in _SECRET
        yield SettingState(
            PREFIX + name.upper(),
            None if secret else _text(name, value),
            source,
            secret,
            value not in (None, (), {}),
            DESCRIPTIONS.get(name, ""),
        )


def _named(
    name: str, values: Mapping[str, object], said: Mapping[str, object], written: Mapping[str, object]
) -> Iterator[SettingState]:
    for each, value in values.items():
        source: Source = "option"
        if said.get(each) == value:
            source = "environment"
        elif written.get(each) == value:
            source = "file"
        variable = PREFIX + _BY_NAME[name] + each.upper().replace("-", "_")
        secret = name in _SECRET
        shown = None if secret else _text(name, value)
        yield SettingState(variable, shown, source, secret, True, DESCRIPTIONS.get(name, ""))


def _read(environment: Mapping[str, str], file: Path | None) -> Settings:
    try:
        return read_settings(environment, file)
    except (InvalidArgument, OSError):  # it was changed since the start
        return Settings()


def _text(name: str, value: object) -> str | None:
    """Return a value as text, as in the environment.

    >>> _text("commands", ("rsync", "df")), _text("worker_http", True), _text("db", "postgresql://a:b@h/d")
    ('rsync,df', 'true', 'postgresql://a@h/d')
    """
    if value is None:
        return None
    if name == "db":
        return shown_address(str(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(sorted(value))
    return str(value)
