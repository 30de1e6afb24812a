"""`deliverTo` of an agent: where its keys may have output delivered, besides its own channel."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.document.kinds import text
from wakeful.document.objects import check_names, read_as, read_object
from wakeful.document.values import refuse, shown
from wakeful.job.job import Json

MAX_ADDRESSES: Final = 100
_EXAMPLE: Final = '[{"channel": "telegram", "to": "123456789"}]'


class DeliveryAddress(NamedTuple):
    """A channel and one recipient there; None: any recipient."""

    channel: str
    to: str | None = None


def deliver_to(value: object) -> tuple[DeliveryAddress, ...]:
    """Return the addresses in a document.

    >>> deliver_to([{"channel": "slack"}, {"channel": "telegram", "to": "123"}])
    (DeliveryAddress(channel='slack', to=None), DeliveryAddress(channel='telegram', to='123'))
    """
    if not isinstance(value, list | tuple):
        refuse(f"{shown(value)} is not a list; write {_EXAMPLE}, or leave it out")
    if len(value) > MAX_ADDRESSES:
        refuse(f"it has {len(value)} entries; at most {MAX_ADDRESSES}")
    addresses = []
    for each in value:
        values = read_object(each, _EXAMPLE)
        check_names(values, "an entry", ("channel", "to"))
        if values.get("channel") is None:
            refuse(f"an entry needs a channel; write {_EXAMPLE}")
        to = values.get("to")
        addresses.append(
            DeliveryAddress(
                str(read_as("channel", text(), values["channel"])),
                None if to is None else str(read_as("to", text(1_024), to)),
            )
        )
    return tuple(addresses)


def written(addresses: tuple[DeliveryAddress, ...]) -> list[Json]:
    """Return the addresses as JSON."""
    return [
        {"channel": channel} if to is None else {"channel": channel, "to": to} for channel, to in addresses
    ]
