"""`deliverTo` of an agent: where else than to its own channel its keys may have output delivered."""

from __future__ import annotations

from typing import Final, NamedTuple

from wakeful.document.objects import an_object, only, read_as
from wakeful.document.values import refuse, shown, text
from wakeful.job import Json

MAX_PLACES: Final = 100
_EXAMPLE: Final = '[{"channel": "telegram", "to": "123456789"}]'


class DeliveryAddress(NamedTuple):
    """A channel, and the one recipient there; None: any."""

    channel: str
    to: str | None = None


def deliver_to(value: object) -> tuple[DeliveryAddress, ...]:
    """The places in a document.

    >>> deliver_to([{"channel": "slack"}, {"channel": "telegram", "to": "123"}])
    (DeliveryAddress(channel='slack', to=None), DeliveryAddress(channel='telegram', to='123'))
    """
    if not isinstance(value, list | tuple):
        refuse(f"{shown(value)} is not a list; write {_EXAMPLE}, or leave it out")
    if len(value) > MAX_PLACES:
        refuse(f"it has {len(value)} entries; at most {MAX_PLACES}")
    places = []
    for each in value:
        given = an_object(each, _EXAMPLE)
        only(given, "an entry", ("channel", "to"))
        if given.get("channel") is None:
            refuse(f"an entry needs a channel; write {_EXAMPLE}")
        to = given.get("to")
        places.append(
            DeliveryAddress(
                str(read_as("channel", text(255), given["channel"])),
                None if to is None else str(read_as("to", text(1_024), to)),
            )
        )
    return tuple(places)


def written(places: tuple[DeliveryAddress, ...]) -> list[Json]:
    """The places as JSON has them."""
    return [{"channel": channel} if to is None else {"channel": channel, "to": to} for channel, to in places]
