"""The label filter of job lists, the same in every interface: `team=ops`, or `team` for any value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from wakeful.document.structures import LONGEST_LABEL
from wakeful.errors import InvalidArgument
from wakeful.store.rows import LabelFilter
from wakeful.values.stored_text import is_storable

MAX_LABEL_FILTERS: Final = 10


def read_label_filter(labels: Mapping[str, str] | Sequence[str]) -> LabelFilter:
    """Return the labels that a job must have; a text without `=` matches any value.

    >>> read_label_filter(["team=ops", "urgent"])
    (('team', 'ops'), ('urgent', None))
    """
    if isinstance(labels, Mapping):
        labels = [f"{name}={value}" for name, value in labels.items()]
    texts = [labels] if isinstance(labels, str) else labels
    if len(texts) > MAX_LABEL_FILTERS:
        raise InvalidArgument(f"label: at most {MAX_LABEL_FILTERS} labels, not {len(texts)}")
    wanted = []
    for text in texts:
        name, equals, value = text.partition("=")
        good = len(name) <= LONGEST_LABEL[0] and len(value) <= LONGEST_LABEL[1] and is_storable(text)
        if not name.strip() or not good:
            raise InvalidArgument(f"label: '{text[:64]}' is not a label; write 'name=value' or 'name'")
        wanted.append((name, value if equals else None))
    return tuple(dict.fromkeys(wanted))
