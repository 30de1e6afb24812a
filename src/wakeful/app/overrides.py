"""The settings that the arguments of an app override.

`wakeful serve --app` refuses to start if the operator sets one of them to another value: the setting would
have no effect.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final, NamedTuple

from wakeful.app.arguments import AppArguments
from wakeful.settings import Settings

#: Settings of the server, which the app does not read.
_SERVER: Final = frozenset(
    {
        "host", "port", "tls_cert", "tls_key", "tls_client_ca", "trusted_proxies", "max_http_connections",
        "admin_key", "worker_port", "worker_http", "processes",
    }
)  # fmt: skip
_LANES: Final = ("main", "subagent", "team", "cron")


class Override(NamedTuple):
    """The argument that overrides a setting, and its value."""

    argument: str
    value: object


def overrides(arguments: AppArguments) -> dict[str, Override]:
    """Return the overrides by the name of the setting."""
    settings, config, defaults = arguments.settings, arguments.config, arguments.defaults
    commands, command_env = arguments.commands, arguments.command_env
    found: dict[str, Override] = {}
    if settings is not None:
        for each in fields(Settings):
            if each.name not in _SERVER:
                found[each.name] = Override("settings", getattr(settings, each.name))
    if config is not None:
        own = {name: size for name, size in config.lanes.items() if name not in _LANES}
        values: dict[str, object] = {
            "tick_ms": config.tick_ms,
            "lookahead_ms": config.limits.lookahead_ms,
            "max_catchup_per_tick": config.limits.max_catchup,
            "retention_days": config.retention_days,
            "lanes": own,
            **{f"lane_{lane}": config.lanes.get(lane) for lane in _LANES},
        }
        found |= {name: Override("config", value) for name, value in values.items()}
    if defaults is not None:
        values = {
            "default_tz": defaults.tz,
            "default_overlap_policy": defaults.overlap,
            "default_catchup_policy": defaults.catchup,
            "default_jitter_ms": defaults.jitter_ms,
            "tz_allowlist": tuple(sorted(defaults.tz_allowlist or ())),
        }
        found |= {name: Override("defaults", value) for name, value in values.items()}
    for name, value in (
        ("secret_key", arguments.secret_key),
        ("allow_private_targets", arguments.allow_private_targets),
        ("commands", None if commands is None else tuple(commands)),
        ("command_env", None if command_env is None else tuple(command_env)),
        ("wait_for_db", arguments.wait_for_db),
    ):
        if value is not None:
            found[name] = Override(name, value)
    if arguments.celery is not None:
        for name in ("celery_app", "celery_broker", "celery_results"):
            found[name] = Override("celery", None)
    if arguments.url is not None:
        found["db"] = Override("url", arguments.url)
    if arguments.store is not None:
        found["db"] = Override("store", None)
    return found


def ignored_settings(operator: Settings, found: dict[str, Override]) -> list[tuple[str, str]]:
    """Return the settings of the operator that have no effect, each with the argument that overrides it."""
    standard = Settings()
    return [
        (name, override.argument)
        for name, override in found.items()
        if getattr(operator, name) not in (getattr(standard, name), override.value)
    ]
