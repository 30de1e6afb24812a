"""The operator's settings: environment variables (`WAKEFUL_…`) override `wakeful.toml`.

An invalid value stops the start with an error that names it. `TICK_MS` is `WAKEFUL_TICK_MS` in the
environment and `tick_ms` in the file.
"""

from __future__ import annotations

import os
import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from wakeful.errors import InvalidArgument
from wakeful.settings.chat import ChatModel, is_chat, read_chat
from wakeful.settings.event_servers import EventServer, is_event_server, read_event_servers
from wakeful.settings.oidc import GROUPS, Grants, check_oidc, read_groups
from wakeful.values.process_share import usable_cores

PREFIX: Final = "WAKEFUL_"
#: the file of the settings, in the working directory
FILE: Final = Path("wakeful.toml")
#: variables of other programs that are credentials: the database driver and the exporter of traces read them
SECRET_VARIABLES: Final = frozenset(
    {"PGPASSWORD", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}
)
#: how long `--wait-for-db` waits without a value
WAIT_FOR_DB_S: Final = 60
#: settings that collect variables with a prefix, such as `LANE_…`
_NAMED: Final = ("lanes", "channels", "chat_keys", "chat_hosts", "chat_models", "event_servers", GROUPS)
#: the format of an API key: 32 random bytes in URL-safe base64
API_KEY: Final = re.compile(r"wk_[A-Za-z0-9_-]{43}")
_PUBLIC_URL: Final = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_NATS_URL: Final = re.compile(r"(nats|tls|ws|wss)://[^\s,]+")
_SLUG: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, with its default."""

    #: `sqlite:///path` or `postgresql://…`. It may contain a password and is not shown
    db: str = field(default="sqlite:///wakeful.db", repr=False)
    host: str = "127.0.0.1"
    port: int = 9253
    #: the processes of `serve`, which share its port; `auto` is read as the number of usable cores
    processes: int = 1
    #: the engine's longest sleep
    tick_ms: int = 1_000
    lookahead_ms: int = 60_000
    max_catchup_per_tick: int = 100
    default_overlap_policy: Literal["allow", "skip", "queue", "queue_one", "replace"] = "skip"
    default_catchup_policy: Literal["none", "latest", "fire_immediately", "spread"] = "none"
    default_jitter_ms: int = 0
    default_tz: str = "UTC"
    lane_main: int = 30
    lane_subagent: int = 50
    lane_team: int = 100
    lane_cron: int = 30
    #: further lanes by name: `WAKEFUL_LANE_NIGHT_SHIFT=5` is the lane `night-shift`
    lanes: Mapping[str, int] = field(default_factory=dict)
    #: Apprise URLs by channel name: `WAKEFUL_CHANNEL_TEAM_OPS=slack://…` is `team-ops`. They are credentials
    #: and not shown
    channels: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: API keys of chat endpoints by name: `WAKEFUL_CHAT_KEY_OPENAI=sk-…` is `openai`
    chat_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: by the name of a key, the hosts that may get it: `WAKEFUL_CHAT_HOSTS_OPENAI=api.openai.com`
    chat_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: prices and context windows of models: JSON in `WAKEFUL_CHAT_MODELS`, a table in the file
    chat_models: Mapping[str, ChatModel] = field(default_factory=dict)
    #: MCP servers by name, whose events start jobs: `WAKEFUL_EVENT_SERVER_CRM=https://…/mcp` is `crm`
    event_servers: Mapping[str, EventServer] = field(default_factory=dict)
    retention_days: int = 30
    #: encrypts webhook secrets at rest
    secret_key: str | None = field(default=None, repr=False)
    allow_private_targets: bool = False
    #: the allowed time zones, comma-separated; empty: all
    tz_allowlist: tuple[str, ...] = ()
    #: the target kinds that jobs of an agent's key may have besides the agent's own target; `*`: all
    agent_targets: tuple[str, ...] = ("pull", "webhook", "workflow")
    #: the target kinds that jobs of a chat's model may have besides the target of its agent; `*`: all
    chat_targets: tuple[str, ...] = ()
    #: the programs that jobs may run, comma-separated: `/usr/bin/rsync`, `rsync`, `/opt/jobs/*`, `*`
    commands: tuple[str, ...] = ()
    #: the environment names that jobs may set for their commands, comma-separated: `JOB_*`, `REPORT_TO`
    command_env: tuple[str, ...] = ("JOB_*",)
    #: the NATS servers of queue targets, comma-separated: `nats://127.0.0.1:4222`; empty: none
    nats_url: tuple[str, ...] = field(default=(), repr=False)
    #: the path of a NATS credentials file
    nats_creds: str | None = None
    #: PEM files for TLS to NATS: the CA of the servers, and the certificate of this client with its key
    nats_tls_ca: str | None = None
    nats_tls_cert: str | None = None
    nats_tls_key: str | None = None
    #: the subjects that jobs may name, comma-separated: `reports.daily`, `orders.>`
    nats_subjects: tuple[str, ...] = ()
    #: whether missing streams are created, and how many copies each one has
    nats_create_streams: bool = True
    nats_replicas: int = 1
    #: the Celery app whose tasks jobs may run: `shop.celery:app`
    celery_app: str | None = None
    #: instead of an app: the broker and the result backend of one whose code is not installed here. They may
    #: contain passwords and are not shown
    celery_broker: str | None = field(default=None, repr=False)
    celery_results: str | None = field(default=None, repr=False)
    #: the tasks that jobs may run, comma-separated: `shop.reports.*`; empty: those that the app registers
    celery_tasks: tuple[str, ...] = ()
    #: whether a task that runs is terminated if its run is stopped, replaced or timed out
    celery_terminate: bool = True
    #: the format and the least level of the log on stderr
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    #: how many jobs may be created per day (UTC), and how many may exist; 0: unlimited
    quota_create_per_workspace: int = 0
    quota_create_per_agent: int = 0
    quota_jobs_per_workspace: int = 0
    quota_jobs_per_agent: int = 0
    #: how many instances of agent classes may exist; 0: unlimited
    quota_instances_per_workspace: int = 0
    quota_instances_per_agent: int = 0
    #: requests that the trigger URL of a job takes per minute and process; 0: unlimited
    hooks_per_minute: int = 60
    #: hours without a request after which a sign-in session ends, and hours after which it ends in any case
    session_idle_hours: int = 12
    session_max_hours: int = 168
    #: failed sign-ins per minute and client address; 0: unlimited
    failed_sign_ins_per_minute: int = 10
    #: the address at which others reach the server, for trigger URLs and sign-in; None: that of the request
    public_url: str | None = None
    #: the port of `worker`, for health and metrics; None: 9254, or a free port if that is in use
    worker_port: int | None = None
    #: whether `worker` serves HTTP
    worker_http: bool = True
    #: seconds to wait at start for an unavailable database; None: 0 in `serve`, 60 in `worker`
    wait_for_db: int | None = None
    #: open HTTP connections per process, of any kind; 0: as many as the limit of open files allows
    max_http_connections: int = 4_000
    #: open RPC connections and event streams per process, in total, per workspace and per key; 0: unlimited
    max_connections: int = 1_000
    max_connections_per_workspace: int = 800
    max_connections_per_key: int = 250
    #: requests in progress per process of the keys of one workspace, waiting claims included; 0: unlimited
    max_requests_per_workspace: int = 2_000
    #: open RPC connections that are not authenticated yet; 0: unlimited
    max_unauthenticated_connections: int = 50
    #: the admin key of the server, instead of a generated one in a file
    admin_key: str | None = field(default=None, repr=False)
    #: accept JWTs signed with this secret, or with a key of the key set at this URL
    jwt_secret: str | None = field(default=None, repr=False)
    jwks_url: str | None = field(default=None, repr=False)
    jwt_audience: str | None = None
    jwt_issuer: str | None = None
    #: whether people may connect assistants to /mcp with OAuth, unless an issuer is set
    oauth: bool = True
    #: sign-in to the dashboard by OpenID Connect: the issuer, its name on the sign-in page, and this client
    oidc_issuer: str | None = None
    oidc_name: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = field(default=None, repr=False)
    oidc_scopes: str = "openid profile email"
    #: the claim with the groups of a person; the roles of each group by workspace (`settings.oidc`)
    oidc_groups_claim: str = "groups"
    oidc_groups: Mapping[str, Grants] = field(default_factory=dict)
    #: the domains of verified addresses that may sign in, comma-separated; empty: all
    oidc_domains: tuple[str, ...] = ()
    #: the bearer token required for /metrics; None: no token
    metrics_key: str | None = field(default=None, repr=False)
    #: the number of agents that have series of their own in /metrics; the others share one
    metrics_agents: int = 20
    #: a URL that the process requests at intervals while it works, for an external watchdog
    ping_url: str | None = field(default=None, repr=False)
    ping_ms: int = 60_000
    #: PEM files for TLS in the server; with a CA, clients must present a certificate of it
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    #: addresses of proxies whose `X-Forwarded-For` is trusted
    trusted_proxies: tuple[str, ...] = ()
    #: sites whose pages may use /mcp and /ws, besides the server's own: `https://app.example.com`; `*`: all
    allowed_origins: tuple[str, ...] = ()
    #: the accepted `Host` headers, against DNS rebinding: `wakeful.example.com`; empty: all
    allowed_hosts: tuple[str, ...] = ()


#: the minimum of numbers; 0 if not listed
_MINIMUM: Final = {
    "processes": 1,
    "tick_ms": 10,
    "lookahead_ms": 1,
    "max_catchup_per_tick": 1,
    "lane_main": 1,
    "lane_subagent": 1,
    "lane_team": 1,
    "lane_cron": 1,
    "retention_days": 1,
    "session_idle_hours": 1,
    "session_max_hours": 1,
    "ping_ms": 100,
    "nats_replicas": 1,
}
#: the maximum of numbers
_MAXIMUM: Final = {
    "port": 65_535,
    "worker_port": 65_535,
    "processes": 256,
    "metrics_agents": 1_000,
    "session_idle_hours": 8_760,
    "session_max_hours": 8_760,
    "nats_replicas": 5,
}


_active: Settings | None = None


@contextmanager
def active_settings(settings: Settings) -> Iterator[None]:
    """Use these settings for every Wakeful that is created inside the block without its own."""
    global _active
    before, _active = _active, settings
    try:
        yield
    finally:
        _active = before


def current_settings() -> Settings:
    """Return the active settings, else those of the environment."""
    return read_settings(os.environ) if _active is None else _active


def read_settings(environment: Mapping[str, str], file: Path | None = None) -> Settings:
    """Read the settings of an environment and file. Raise InvalidArgument that names an invalid one.

    >>> read_settings({"WAKEFUL_TICK_MS": "500"}).tick_ms
    500
    >>> read_settings({"WAKEFUL_PORT": "http"})
    Traceback (most recent call last):
    wakeful.errors.InvalidArgument: WAKEFUL_PORT: 'http' is not a whole number
    """
    values: dict[str, Any] = {"lanes": {}, "channels": {}}
    grouped: dict[str, tuple[str, object]] = {}
    if file is not None and file.is_file():
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{file}: not valid TOML: {error}") from error
        found = {key: _read_one(values, grouped, f"{file}: {key}", key, content[key]) for key in content}
        unknown = sorted(key for key in found if not found[key])
        if unknown:
            names = ", ".join(_kinds())
            raise InvalidArgument(f"{file}: unknown setting: {', '.join(unknown)}; known are {names}")
    for name, text in environment.items():
        if name.startswith(PREFIX):
            _read_one(values, grouped, name, name.removeprefix(PREFIX).lower(), text)
    read = read_chat({key: each for key, each in grouped.items() if is_chat(key)})
    servers = read_event_servers({key: each for key, each in grouped.items() if is_event_server(key)})
    settings = Settings(
        **values,
        chat_keys=read.keys,
        chat_hosts=read.hosts,
        chat_models=read.models,
        event_servers=servers,
    )
    check_oidc(settings.oidc_issuer, settings.oidc_client_id, settings.oidc_groups)
    return settings


@cache
def _kinds() -> Mapping[str, Any]:
    """Return the type of each setting that is one value."""
    return {key: kind for key, kind in get_type_hints(Settings).items() if key not in _NAMED}


def _read_one(
    values: dict[str, Any], grouped: dict[str, tuple[str, object]], name: str, key: str, value: object
) -> bool:
    """Add a setting to `values`; one of a chat endpoint or an event server to `grouped`. False: unknown."""
    known = _kinds()
    if key in known:
        values[key] = _value(name, key, value, known[key])
    elif key.startswith("lane_"):
        values["lanes"][_lane(key)] = _value(name, "lane_main", value, int)
    elif key.startswith("channel_"):
        values["channels"][_channel(name, key)] = _channel_url(name, value)
    elif key == GROUPS:
        values[GROUPS] = read_groups(name, value)
    elif is_chat(key) or is_event_server(key):
        grouped[key] = name, value
    else:
        return False
    return True


def _lane(key: str) -> str:
    return key.removeprefix("lane_").replace("_", "-")


def _channel(name: str, key: str) -> str:
    channel = key.removeprefix("channel_").replace("_", "-")
    if not _SLUG.fullmatch(channel) or len(channel) > 64:
        raise InvalidArgument(
            f"{name}: '{channel}' is not a channel name; use a-z, 0-9 and _, as in TEAM_OPS"
        )
    return channel


def _channel_url(name: str, url: object) -> str:
    """Return the URL of a channel. Errors do not contain it."""
    if not isinstance(url, str) or not url.strip():
        raise InvalidArgument(f"{name}: set the Apprise URL of the service, such as tgram://…")
    return url.strip()


def _value(name: str, key: str, value: object, kind: Any) -> Any:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value).strip()
    if get_origin(kind) is types.UnionType:
        if not text:
            return None
        if key == "wait_for_db" and text.lower() in _TRUE | _FALSE and not text.isdecimal():
            return WAIT_FOR_DB_S if text.lower() in _TRUE else 0
        (kind,) = (each for each in get_args(kind) if each is not types.NoneType)
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise InvalidArgument(f"{name}: '{text}' is not one of {', '.join(get_args(kind))}")
        return text
    if kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise InvalidArgument(f"{name}: '{text}' is not true or false")
        return text.lower() in _TRUE
    if kind is int:
        if key == "processes" and text.lower() == "auto":
            return usable_cores()
        try:
            number = int(text)
        except ValueError:
            # Kubernetes sets WAKEFUL_PORT to an address in pods beside a service named `wakeful`.
            cause = "; set enableServiceLinks: false in the pod" if text.startswith("tcp://") else ""
            cause = " or auto" if key == "processes" else cause
            raise InvalidArgument(f"{name}: '{text}' is not a whole number{cause}") from None
        least = _MINIMUM.get(key, 0)
        if number < least:
            raise InvalidArgument(f"{name}: {number} is too small; the minimum is {least}")
        if number > _MAXIMUM.get(key, number):
            raise InvalidArgument(f"{name}: {number} is too large; the maximum is {_MAXIMUM[key]}")
        return number
    if key == "admin_key" and not API_KEY.fullmatch(text):  # not shown: it may be a mistyped key
        raise InvalidArgument(f"{name}: write wk_ and 43 letters, digits, - or _, from 32 random bytes")
    if key == "public_url" and not _PUBLIC_URL.fullmatch(text):
        raise InvalidArgument(f"{name}: '{text}' is not a URL such as https://wakeful.example.com")
    if kind is str:
        return text.rstrip("/") if key == "public_url" else text
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if key == "nats_url" and not all(map(_NATS_URL.fullmatch, parts)):  # not shown: it may have a password
        raise InvalidArgument(f"{name}: write addresses such as nats://127.0.0.1:4222")
    return parts
