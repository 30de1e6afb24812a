"""The TLS settings of a client: its certificate, and the authorities that it trusts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from wakeful.errors import InvalidArgument

CERT = "WAKEFUL_CLIENT_CERT"
KEY = "WAKEFUL_CLIENT_KEY"
CA = "WAKEFUL_CA_BUNDLE"


class ClientTls(NamedTuple):
    """PEM files: a certificate, its private key unless it is in the same file, and authorities."""

    cert: str | None = None
    key: str | None = None
    ca: str | None = None

    def or_else(self, environment: Mapping[str, str] = os.environ) -> ClientTls:
        """Return these settings, completed from the environment.

        A certificate and a key are taken from the same source.
        """
        own = self.cert or self.key
        return ClientTls(
            self.cert or (None if own else environment.get(CERT) or None),
            self.key or (None if own else environment.get(KEY) or None),
            self.ca or environment.get(CA) or None,
        )

    def context(self) -> ssl.SSLContext | None:
        """Return the SSL context; None for the default one. InvalidArgument names the invalid file."""
        if self.cert is None and self.key is not None:
            raise InvalidArgument(f"the private key {self.key} has no certificate; give one (--cert, {CERT})")
        if self.cert is None and self.ca is None:
            return None
        for what, file in (("certificate", self.cert), ("private key", self.key), ("CA bundle", self.ca)):
            if file is not None and not os.access(file, os.R_OK):
                raise InvalidArgument(f"the {what} '{file}' cannot be read; give the path of a PEM file")
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError as error:
            raise InvalidArgument(f"the CA bundle '{self.ca}' holds no PEM certificate: {error}") from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except (ssl.SSLError, ValueError) as error:
                raise InvalidArgument(
                    f"'{self.cert}' and its private key are not a PEM pair without a password: {error}"
                ) from error
        return context
