"""The arguments of `Wakeful`, and what follows from them together with the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wakeful.cron import zone
from wakeful.document import Defaults
from wakeful.engine.engine import LEAD_MS, EngineConfig
from wakeful.errors import InvalidArgument
from wakeful.run.planning import Limits
from wakeful.settings import PREFIX, Settings, current_settings
from wakeful.store.port import Store
from wakeful.values.process_share import ProcessShare, current_share


@dataclass(frozen=True, slots=True, kw_only=True)
class AppArguments:
    """The arguments of an app. `Wakeful` documents them; None: the setting applies."""

    url: str | None = None
    workspace: str = "default"
    agent: str = "default"
    secret_key: str | None = None
    allow_private_targets: bool | None = None
    commands: Sequence[str] | None = None
    command_env: Sequence[str] | None = None
    celery: object | None = None
    defaults: Defaults | None = None
    config: EngineConfig | None = None
    grace: float = 10.0
    wait_for_db: float | None = None
    store: Store | None = None
    settings: Settings | None = None

    def effective_settings(self) -> Settings:
        """Return the settings with the values of the arguments that override them."""
        settings = self.settings or current_settings()
        private, commands, variables = self.allow_private_targets, self.commands, self.command_env
        return replace(
            settings,
            db=self.url or settings.db,
            secret_key=self.secret_key or settings.secret_key,
            allow_private_targets=settings.allow_private_targets if private is None else private,
            commands=settings.commands if commands is None else tuple(commands),
            command_env=settings.command_env if variables is None else tuple(variables),
        )


def engine_config(given: EngineConfig | None, settings: Settings) -> EngineConfig:
    """Return the given configuration, else that of the settings, with this process's part of each lane."""
    return _take_share(given or _config(settings), current_share())


def _config(settings: Settings) -> EngineConfig:
    return EngineConfig(
        tick_ms=settings.tick_ms,
        lanes={
            "main": settings.lane_main,
            "subagent": settings.lane_subagent,
            "team": settings.lane_team,
            "cron": settings.lane_cron,
            **settings.lanes,
        },
        limits=Limits(settings.lookahead_ms, settings.max_catchup_per_tick, LEAD_MS),
        retention_days=settings.retention_days,
    )


def _take_share(config: EngineConfig, share: ProcessShare) -> EngineConfig:
    return replace(config, lanes={lane: share.divide_lane(size) for lane, size in config.lanes.items()})


def job_defaults(settings: Settings) -> Defaults:
    """Return the defaults of job fields that the settings set. Raises InvalidArgument for a bad time zone."""
    tz = _zone("DEFAULT_TZ", settings.default_tz)
    allowed = frozenset(_zone("TZ_ALLOWLIST", each) for each in settings.tz_allowlist)
    if allowed and tz not in allowed and tz != Defaults().tz:  # without the setting, each job names its zone
        raise InvalidArgument(
            f"{PREFIX}DEFAULT_TZ: '{tz}' is not in {PREFIX}TZ_ALLOWLIST, so no job could use it; add it "
            f"there, or set one of {', '.join(sorted(allowed)[:5])}"
        )
    return Defaults(
        tz=tz,
        overlap=settings.default_overlap_policy,
        catchup=settings.default_catchup_policy,
        jitter_ms=settings.default_jitter_ms,
        tz_allowlist=allowed or None,
    )


def _zone(setting: str, name: str) -> str:
    try:
        return zone(name).name
    except InvalidArgument as error:
        raise InvalidArgument(f"{PREFIX}{setting}: {error.message}") from error
