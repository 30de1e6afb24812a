"""Public holidays from the holidays library, by region and year.

Loading the library takes half a second, and computing a year of a region up to some milliseconds. Results are
cached. `engine.calendar_loader` does both in a thread before the event loop needs them.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Final

from wakeful.errors import InvalidArgument

#: The number of cached regions and years: a few megabytes.
_CACHED: Final = 4096


def find_region(text: str) -> str:
    """Return the country, or country and subdivision, as the library names it, or raise InvalidArgument.

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
    choice = f"use one of {', '.join(known[country])}" if known[country] else "it has none"
    raise InvalidArgument(
        f"'{wanted[:32]}' is not a subdivision of {country} with its own holidays; {choice}"
    )


@lru_cache(maxsize=_CACHED)
def last_year(region: str) -> int:
    """Return the last year for which the library knows the holidays of a region."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    return country_holidays(country, subdiv=subdivision or None).end_year


@lru_cache(maxsize=_CACHED)
def holidays_of(region: str, year: int) -> frozenset[int]:
    """Return the holidays of a region and year as ordinals of days. All jobs share them."""
    from holidays import country_holidays

    country, _, subdivision = region.partition("-")
    with warnings.catch_warnings():
        # The library warns of years for which it knows only some of the holidays.
        warnings.simplefilter("ignore")
        days = country_holidays(country, subdiv=subdivision or None, years=year)
    return frozenset(day.toordinal() for day in days)
