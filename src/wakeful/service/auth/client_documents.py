"""Client ID metadata documents: the metadata of an OAuth client, at the address that is its id.

The address comes from a request, so it is fetched like the URL of a webhook: only from public addresses,
without redirects, and within limits. Only a person who has signed in causes a fetch.
"""

from __future__ import annotations

import asyncio
from typing import Final

from yarl import URL

from wakeful.errors import InvalidArgument
from wakeful.launch.address_guard import AddressGuard, AddressRefused
from wakeful.launch.http.client import HttpClient
from wakeful.launch.http.messages import HttpError
from wakeful.values.package import VERSION

MAX_BYTES: Final = 10_240
_LONGEST_URL: Final = 500
_TIMEOUT_S: Final = 5.0
#: How many documents are fetched at once.
_AT_ONCE: Final = 4
_HEADERS: Final = {"accept": "application/json", "user-agent": f"wakeful/{VERSION}"}


class ClientDocuments:
    """Fetches metadata documents."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def is_address(self, client_id: str) -> bool:
        """Return whether a client id is the address of a document.

        >>> documents = ClientDocuments(AddressGuard())
        >>> documents.is_address("https://claude.ai/client.json"), documents.is_address("https://claude.ai/")
        (True, False)
        """
        try:
            url = URL(client_id, encoded=True)
        except ValueError:
            return False
        schemes = ("https", "http") if self._guard.allow_private else ("https",)
        plain = url.user is None and not url.raw_fragment and not {".", ".."} & set(url.raw_path.split("/"))
        return (
            len(client_id) <= _LONGEST_URL
            and client_id.isascii()
            and url.scheme in schemes
            and bool(url.raw_host)
            and url.raw_path not in ("", "/")
            and plain
        )

    async def fetch(self, client_id: str) -> bytes:
        """Return the document at an address. InvalidArgument: there is none that can be used."""
        async with self._turns:
            client = HttpClient(self._guard, connections=1, per_host=1)
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    url = URL(client_id, encoded=True)
                    response = await client.request("GET", url, _HEADERS, None, MAX_BYTES + 1)
            except AddressRefused as error:
                raise InvalidArgument(f"client_id: {error}") from error
            except (HttpError, OSError, TimeoutError, ValueError) as error:
                problem = str(error) or f"no response within {_TIMEOUT_S:.0f} s"
                raise InvalidArgument(f"client_id: its document cannot be read: {problem}") from error
            finally:
                await client.close()
        media_type = (response.header(b"content-type") or "").partition(";")[0].strip().lower()
        if response.status != 200:
            raise InvalidArgument(f"client_id: its address answers {response.status} and not a document")
        if media_type != "application/json" and not media_type.endswith("+json"):
            raise InvalidArgument("client_id: the document at its address is not JSON")
        if len(response.body) > MAX_BYTES:
            raise InvalidArgument(f"client_id: its document has more than {MAX_BYTES} bytes")
        return response.body
