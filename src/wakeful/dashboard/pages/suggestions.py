"""Suggestions: better settings for jobs, with figures; apply, dismiss and roll back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from wakeful.dashboard.context import PageDep, page_router
from wakeful.dashboard.formats import duration, number, percent
from wakeful.errors import InvalidArgument
from wakeful.evolution.suggestion import FIGURE, SUGGESTION_STATUSES, Suggestion, describe
from wakeful.values.ids import is_id
from wakeful.values.json_value import Json, compact

router = page_router()

_SHOWN: Final = 50
#: The words for rules, statuses, figures and verdicts.
RULES: Final = {
    "stagger_peak": "Spread a peak",
    "widen_interval": "Widen the interval",
    "raise_timeout": "Raise the timeout",
    "pause_failing": "Pause what always fails",
}
STATUSES: Final = {
    "open": "Open",
    "applied": "Applied",
    "dismissed": "Dismissed",
    "rolled_back": "Rolled back",
    "withdrawn": "Withdrawn",
}
_VERDICTS: Final = {
    "improved": "It got better",
    "worse": "It got worse, so it was rolled back",
    "unchanged": "No clear change",
    "too_early": "Too early to say",
    "superseded": "The job was changed since",
}


class SuggestionItem(NamedTuple):
    """A suggestion as the page shows it."""

    suggestion: Suggestion
    rule: str
    status: str
    summary: str
    figures: list[tuple[str, str]]
    #: field, before, after
    change: list[tuple[str, str, str]]
    evaluation: list[tuple[str, str]]
    verdict: str | None


@router.get("/suggestions")
async def suggestions(page: PageDep) -> Response:
    """List suggestions, open ones by default."""
    status = page.query.get("status", "open")
    if status not in ("all", *SUGGESTION_STATUSES):
        raise InvalidArgument(f"status: choose all or one of {', '.join(SUGGESTION_STATUSES)}")
    cursor = page.query.get("cursor")
    if cursor is not None and not is_id(cursor):
        raise InvalidArgument("cursor: it is not a cursor of this list; open the page from the menu")
    found = await page.services.admin.suggestions.list(
        page.principal,
        page.workspace,
        agent=page.query.get("agent"),
        job=page.query.get("job"),
        statuses=() if status == "all" else (status,),
        before=cursor,
        limit=_SHOWN + 1,
    )
    shown = found[:_SHOWN]
    return page.render(
        "suggestions.html",
        title="Suggestions",
        active="suggestions",
        items=[item(each) for each in shown],
        statuses=[*STATUSES.items(), ("all", "All")],
        chosen=status,
        cursor=shown[-1].id if len(found) > _SHOWN else None,
        may_decide=page.may("suggestion.decide"),
    )


def item(suggestion: Suggestion) -> SuggestionItem:
    """Return a suggestion with its texts."""
    figures: Mapping[str, Json] = json.loads(suggestion.figures)
    change: Mapping[str, Json] = json.loads(suggestion.change)
    before: Mapping[str, Json] = json.loads(suggestion.before)
    evaluation: Mapping[str, Any] = json.loads(suggestion.evaluation) if suggestion.evaluation else {}
    verdict = evaluation.get("verdict")
    return SuggestionItem(
        suggestion,
        RULES[suggestion.rule],
        STATUSES[suggestion.status],
        describe(suggestion.rule, figures, change),
        [(_words(name), figure_text(name, value)) for name, value in figures.items()],
        [
            (name, figure_text(name, before.get(name)), figure_text(name, value))
            for name, value in change.items()
        ],
        [
            (
                _words(name),
                figure_text(FIGURE[suggestion.rule] if name in ("before", "after") else name, value),
            )
            for name, value in evaluation.items()
            if name not in ("verdict", "figure") and value is not None
        ],
        None if verdict is None else _VERDICTS.get(str(verdict), _words(str(verdict))),
    )


def figure_text(name: str, value: Json) -> str:
    """Return a figure or a field as text.

    >>> (
    ...     figure_text("timeoutMs", 600_000),
    ...     figure_text("overlapShare", 0.5),
    ...     figure_text("enabled", False),
    ...     figure_text("runs", 12),
    ... )
    ('10 m', '50 %', 'false', '12')
    """
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        if name.endswith(("Ms", "MsPerRun")):
            return duration(value)
        return percent(value) if name.endswith("Share") else number(value)
    return value if isinstance(value, str) else compact(value)


def _words(name: str) -> str:
    """Return the name of a figure in words.

    >>> _words("peakDelayMs"), _words("runs")
    ('Peak delay', 'Runs')
    """
    text = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    text = text.removesuffix(" ms").replace(" ms per run", " per run").replace("_", " ")
    return text[:1].upper() + text[1:]
