"""Addresses of PostgreSQL databases: `postgresql://user:password@host:5432,host:5433/name?schema=wakeful`."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from wakeful.errors import InvalidArgument
from wakeful.store.address import split_address


class Host(NamedTuple):
    """A server. Without a port, the driver's default applies."""

    name: str
    port: int | None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


class Address(NamedTuple):
    """A database, and the schema of our tables."""

    dsn: str
    schema: str
    pool_size: int

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The servers in their order; empty if the driver finds the server by itself (`PGHOST`).

        >>> [str(host) for host in parse_address("postgresql://ada@a:5432,b/main").hosts]
        ['a:5432', 'b']
        """
        parts = urlsplit(self.dsn)
        given = parts.netloc.rpartition("@")[2]
        options = dict(parse_qsl(parts.query))
        if not given:
            ports = options.get("port", "").split(",")
            names = [name for name in options.get("host", "").split(",") if name]
            ports = ports * len(names) if len(ports) == 1 else ports
            return tuple(_host(name, port) for name, port in zip(names, ports, strict=False))
        return tuple(_host(unquote(each), "") for each in given.split(","))

    @property
    def application_name(self) -> str | None:
        """The name of connections that the address gives.

        >>> parse_address("postgresql://localhost/main?application_name=nightly").application_name
        'nightly'
        """
        return dict(parse_qsl(urlsplit(self.dsn).query)).get("application_name")

    @property
    def masked(self) -> str:
        """The address for a message: without its password."""
        names = ",".join(host.name for host in self.hosts)
        return f"{names or 'localhost'}{urlsplit(self.dsn).path}"


def _host(text: str, port: str) -> Host:
    name, _, own = ("", "", "") if text.startswith("/") else text.rpartition(":")
    if not name or not own.isdecimal():
        name, own = text, port
    return Host(name.strip("[]"), int(own) if own.isdecimal() else None)


def parse_address(url: str) -> Address:
    """Return the database of a `postgresql://…` address.

    The options `schema` and `pool_size` are ours, the others are the driver's. Wakeful writes, so it connects
    only to servers that accept writes, unless the address has another `target_session_attrs`.

    >>> parse_address("postgresql://localhost/main?schema=night&sslmode=require").dsn
    'postgresql://localhost/main?sslmode=require&target_session_attrs=read-write'
    >>> parse_address("postgresql://localhost/main?schema=night&pool_size=5")[1:]
    ('night', 5)
    """
    parts = split_address(url)
    if parts is None:
        raise InvalidArgument(
            "this PostgreSQL address cannot be read; write postgresql://user:password@host:5432/name, and in "
            "the user and the password %2F for /, %40 for @, %3A for :, %23 for #, %3F for ? and %5B for ["
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema, pool_size = options.pop("schema", "wakeful"), options.pop("pool_size", "10")
    if re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,47}", schema) is None:
        raise InvalidArgument(
            f"'{schema}' cannot be the schema: give a name of lower-case letters, digits and _, at most 48, "
            "that does not start with a digit or pg_"
        )
    if re.fullmatch(r"[0-9]{1,3}", pool_size) is None or int(pool_size) < 2:
        raise InvalidArgument(f"pool_size: '{pool_size}' is not a number from 2 to 999")
    options.setdefault("target_session_attrs", "read-write")
    dsn = parts._replace(query=urlencode(options, safe="/,")).geturl()
    return Address(dsn, schema, int(pool_size))
