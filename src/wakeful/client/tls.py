"""The TLS of a client: its own certificate, and which authorities it trusts."""

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
        """These, and what the environment says where they say nothing.

        A certificate that is given goes with the key that is given, not with another's.
        """
        own = self.cert or self.key
        return ClientTls(
            self.cert or (None if own else environment.get(CERT) or None),
            self.key or (None if own else environment.get(KEY) or None),
            self.ca or environment.get(CA) or None,
        )

    def context(self) -> ssl.SSLContext | None:
        """What connections are made with; None: the usual. InvalidArgument names the file that is wrong."""
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
            raise InvalidArgument(
                f"the CA bundle '{self.ca}' holds no certificate in PEM: {error}"
            ) from error
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except (ssl.SSLError, ValueError) as error:
                raise InvalidArgument(
                    f"'{self.cert}' and its private key are not a pair in PEM without a password: {error}"
                ) from error
        return context
