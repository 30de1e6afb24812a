"""The address of a PostgreSQL database in `DATABASES`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

#: The options of a PostgreSQL connection that also apply to ours.
_OPTIONS: Final = (
    "passfile", "service", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs",
)  # fmt: skip


def postgres_url(of_project: Mapping[str, Any], schema: str | None) -> str:
    """Return the address of a database of `DATABASES`.

    >>> postgres_url({"NAME": "shop", "USER": "ada", "PASSWORD": "a/b", "HOST": "db", "PORT": 5433}, None)
    'postgresql://ada:a%2Fb@db:5433/shop'
    >>> postgres_url({"NAME": "shop", "HOST": "::1", "PORT": "5433"}, None)
    'postgresql://[::1]:5433/shop'
    >>> postgres_url({"NAME": "shop", "HOST": "/run/postgresql", "OPTIONS": {"sslmode": "disable"}}, "jobs")
    'postgresql:///shop?sslmode=disable&host=%2Frun%2Fpostgresql&schema=jobs'
    """
    user, password, host, port = (
        str(of_project.get(key) or "") for key in ("USER", "PASSWORD", "HOST", "PORT")
    )
    options = of_project.get("OPTIONS") or {}
    query = {name: str(options[name]) for name in _OPTIONS if name in options}
    hosts = ""
    if host.startswith("/") or not host:  # the directory of a socket
        query |= {name: value for name, value in (("host", host), ("port", port)) if value}
    else:
        ports = port.split(",") if port else [""]
        names = [f"[{name}]" if ":" in name else name for name in host.split(",")]
        ports = ports * len(names) if len(ports) == 1 else ports
        hosts = ",".join(f"{name}:{own}" if own else name for name, own in zip(names, ports, strict=True))
    if schema is not None:
        query["schema"] = schema
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    name = quote(str(of_project.get("NAME") or ""), safe="")
    address = f"postgresql://{login}{'@' if login else ''}{hosts}/{name}"
    return f"{address}?{urlencode(query)}" if query else address
