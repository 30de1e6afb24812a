"""The effective settings of this process, for operators: values with their source, and no secrets.

Each is described in a sentence; `docs/reference/settings.md` says more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final, Literal, NamedTuple

from wakeful.errors import InvalidArgument
from wakeful.service.auth.access import Principal
from wakeful.service.auth.accounts import Accounts
from wakeful.settings import FILE, PREFIX, Settings, read_settings
from wakeful.store.address import mask_address

Source = Literal["environment", "file", "option", "default"]

#: Settings that are credentials, or contain one: only whether they are set is shown.
_SECRET: Final = frozenset(
    {
        "secret_key", "admin_key", "jwt_secret", "jwks_url", "metrics_key", "ping_url", "channels",
        "chat_keys", "celery_broker", "celery_results", "oidc_client_secret",
    }
)  # fmt: skip
#: Settings with one variable for each name, by the prefix of the variables.
_BY_NAME: Final = {
    "lanes": "LANE_",
    "channels": "CHANNEL_",
    "chat_keys": "CHAT_KEY_",
    "chat_hosts": "CHAT_HOSTS_",
    "event_servers": "EVENT_SERVER_",
}

#: The user of an address, with the password, or a token in its place.
_USER: Final = re.compile("//.*@")

#: By the name of the field of `Settings`.
DESCRIPTIONS: Final[Mapping[str, str]] = {
    "db": "The database.",
    "wait_for_db": "Seconds to wait at start for an unavailable database.",
    "host": "The address to listen on.",
    "port": "The port; 0 picks a free one.",
    "processes": "The processes of the server, which share its port.",
    "worker_port": "The port of workers, for health and metrics.",
    "worker_http": "Whether workers serve HTTP.",
    "tick_ms": "The engine's longest sleep.",
    "lookahead_ms": "The window over which the catch-up policy spread spreads missed ticks.",
    "max_catchup_per_tick": "How many ticks of a job one planning pass handles.",
    "default_overlap_policy": "The default overlap policy of jobs.",
    "default_catchup_policy": "The default catch-up policy of jobs.",
    "default_jitter_ms": "The default jitter of jobs.",
    "default_tz": "The zone of jobs whose agent and workspace have none.",
    "lane_main": "Concurrent runs per process in the lane main.",
    "lane_subagent": "Concurrent runs per process in the lane subagent.",
    "lane_team": "Concurrent runs per process in the lane team.",
    "lane_cron": "Concurrent runs per process in the lane cron, the default lane of jobs.",
    "lanes": "Concurrent runs per process in a further lane.",
    "channels": "A channel: an Apprise URL.",
    "chat_keys": "An API key for chat endpoints.",
    "chat_hosts": "The hosts that may get the chat key of the same name.",
    "event_servers": "An MCP server whose events start jobs.",
    "chat_models": "Models with prices and context windows.",
    "retention_days": "How long finished runs and the history of sessions are kept.",
    "secret_key": "Encrypts webhook secrets at rest.",
    "allow_private_targets": "Allow targets at private, loopback and link-local addresses.",
    "tz_allowlist": "The only zones that jobs, agents and workspaces may have.",
    "agent_targets": "The target kinds that jobs of an agent's key may have, besides the agent's own.",
    "chat_targets": "The target kinds that jobs of a chat's model may have, besides the agent's own.",
    "commands": "The programs that command targets, prechecks and checks may run.",
    "command_env": "The environment names that jobs may set for their commands.",
    "nats_url": "The NATS servers of queue targets.",
    "nats_creds": "The path of a NATS credentials file.",
    "nats_tls_ca": "The PEM file with the CA of the NATS servers.",
    "nats_tls_cert": "The PEM file with the certificate for NATS.",
    "nats_tls_key": "The PEM file with its key.",
    "nats_subjects": "The NATS subjects that jobs may name.",
    "nats_create_streams": "Whether missing NATS streams are created.",
    "nats_replicas": "How many copies a NATS stream has that is created.",
    "celery_app": "The Celery app whose tasks jobs may run.",
    "celery_broker": "The broker of a Celery app whose code is not installed here.",
    "celery_results": "The result backend of that app.",
    "celery_tasks": "The Celery tasks that jobs may run.",
    "celery_terminate": "Whether a running task is terminated if its run is stopped or times out.",
    "log_format": "The format of the log.",
    "log_level": "The least level that is logged.",
    "quota_create_per_workspace": "How many jobs a workspace may create per day (UTC); 0 is unlimited.",
    "quota_create_per_agent": "How many jobs an agent may create per day (UTC); 0 is unlimited.",
    "quota_jobs_per_workspace": "How many jobs of a workspace may exist; 0 is unlimited.",
    "quota_jobs_per_agent": "How many jobs of an agent may exist; 0 is unlimited.",
    "quota_instances_per_workspace": "How many instances of a workspace may exist; 0 is unlimited.",
    "quota_instances_per_agent": "How many instances of an agent may exist; 0 is unlimited.",
    "hooks_per_minute": "Requests that the trigger URL of a job takes per minute and process.",
    "public_url": "The address at which others reach the server.",
    "max_http_connections": "Open HTTP connections per process.",
    "max_connections": "Open RPC connections and event streams per process; 0 is unlimited.",
    "max_connections_per_workspace": "Open RPC connections and event streams per process and workspace.",
    "max_requests_per_workspace": "Requests in progress per process and workspace; 0 is unlimited.",
    "max_connections_per_key": "Open RPC connections and event streams per process and key; 0 is unlimited.",
    "max_unauthenticated_connections": "Open RPC connections without credentials yet; 0 is unlimited.",
    "session_idle_hours": "Hours without a request after which a sign-in ends.",
    "session_max_hours": "Hours after which a sign-in ends in any case.",
    "failed_sign_ins_per_minute": "Failed sign-ins that an address may make per minute; 0 is unlimited.",
    "admin_key": "An admin key for all workspaces that is accepted from the start.",
    "jwt_secret": "Accept tokens signed with this secret.",
    "jwks_url": "Accept tokens signed by a key of the key set at this URL.",
    "jwt_audience": "The required audience of tokens.",
    "jwt_issuer": "The required issuer of tokens.",
    "oauth": "Whether people may connect assistants to /mcp with OAuth, unless an issuer is set.",
    "oidc_issuer": "The OpenID Connect issuer at which people sign in to the dashboard.",
    "oidc_name": "Its name on the sign-in page.",
    "oidc_client_id": "The id of this server at the issuer.",
    "oidc_client_secret": "The secret of this server at the issuer.",
    "oidc_scopes": "The scopes that are requested from the issuer.",
    "oidc_groups_claim": "The claim with the groups of a person.",
    "oidc_groups": "The groups of people that may sign in, with their roles by workspace.",
    "oidc_domains": "The domains of verified email addresses that may sign in; all by default.",
    "metrics_key": "The bearer token required for /metrics.",
    "metrics_agents": "The number of agents that have series of their own in /metrics.",
    "ping_url": "A URL that each process requests while it works, for an external watchdog.",
    "ping_ms": "The interval of the requests to the watchdog.",
    "tls_cert": "The PEM file with the certificate of the server.",
    "tls_key": "The PEM file with its key.",
    "tls_client_ca": "The PEM file with the CA of client certificates.",
    "trusted_proxies": "Addresses of proxies whose X-Forwarded-For is trusted.",
    "allowed_origins": "Sites whose pages may use /mcp and /ws, besides the server's own.",
    "allowed_hosts": "The accepted Host headers; all by default.",
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
    >>> _text("nats_url", ("nats://me:pw@a:4222", "nats://token@b", "nats://c"))
    'nats://***@a:4222,nats://***@b,nats://c'
    """
    if value is None:
        return None
    if name == "nats_url" and isinstance(value, tuple):
        value = tuple(_USER.sub("//***@", str(each)) for each in value)
    if name == "db":
        return mask_address(str(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(sorted(value))
    return str(value)
