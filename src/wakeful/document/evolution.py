"""`evolution` of an agent: whether its jobs are analyzed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wakeful.document.values import refuse, shown

#: Other names of the field, which are true or false.
OTHER_NAMES: Final = ("evolutionMetrics", "evolution_metrics")
EVOLUTION_FIELDS: Final = ("evolution", *OTHER_NAMES)
SUGGEST: Final = "suggest"
OFF: Final = "off"
_VALUES: Final = {SUGGEST: True, OFF: False}


def evolution(document: Mapping[str, object]) -> str | None:
    """Return `suggest` if a document turns evolution on, else None.

    YAML reads `off` as false, so true and false are accepted too.

    >>> evolution({"evolution": "suggest"}), evolution({"evolution_metrics": True})
    ('suggest', 'suggest')
    >>> evolution({"evolution": "off"}), evolution({"evolution": False}), evolution({})
    (None, None, None)
    """
    given = {name: document[name] for name in EVOLUTION_FIELDS if document.get(name) is not None}
    wanted = {name: _wanted(name, value) for name, value in given.items()}
    if len(set(wanted.values())) > 1:
        refuse(f"{' and '.join(wanted)} contradict each other; give one of them")
    return SUGGEST if True in wanted.values() else None


def _wanted(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if name in OTHER_NAMES:
        refuse(f"{name}: write true or false")
    if isinstance(value, str) and value in _VALUES:
        return _VALUES[value]
    refuse(f"{name}: {shown(value)} is not one of {SUGGEST} and {OFF}")
