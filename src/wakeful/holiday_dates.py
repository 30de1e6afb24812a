"""Public holidays, by the holidays library: which regions there are, and their days off.

Loading the library takes half a second, and working out a year of a region up to some milliseconds. What is
worked out is kept. `engine.calendar_loader` does both off the event loop before they are needed on it.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Final

from wakeful.errors import InvalidArgument

#: Of the regions and years that there are, so many are kept: a few megabytes.
_KEPT: Final = 4096


def find_region(text: str) -> str:
    """The country, or country and subdivision, in the spelling of the library; InvalidArgument says why not.

    >>> find_region("us-ca")
    'US-CA'
    """
    from holidays import list_supported_countries

    country, dash, wanted = text.partition("-")
    country = country.upper()
    known = list_supported_countries(include_aliases=True)
    if country not in known:
        raise InvalidArgument(
            f"no holidays are known for '{country[:32]}'; give a country, as in 'holidays:DE'"
        )
    if not dash:
        return country
    for subdivision in known[country]:
        if subdivision.replace(" ", "").casefold() == wanted.replace(" ", "").casefold():
            return f"{country}-{subdivision}"
    there = f"there are {', '.join(known[country])}" if known[country] else "it has none"
    raise InvalidArgument(
        f"'{wanted[:32]}' is no subdivision of {country} that the holidays differ by; {there}"
    )


@lru_cache(maxsize=_KEPT)
def last_year(region: str) -> int:
    """The last year for which the library knows the holidays of a region."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    return country_holidays(country, subdiv=subdivision or None).end_year


@lru_cache(maxsize=_KEPT)
def holidays_of(region: str, year: int) -> frozenset[int]:
    """A region's holidays of a year, as ordinals of days. Shared by all jobs."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    with warnings.catch_warnings():
        # The library warns of years for which it knows only some of the holidays; those are still days off.
        warnings.simplefilter("ignore")
        days = country_holidays(country, subdiv=subdivision or None, years=year)
    return frozenset(day.toordinal() for day in days)
