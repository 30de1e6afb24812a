"""What becomes of suggestions: which are new, which are withdrawn, and whether applied ones helped. Pure.

A decision of a person holds: a dismissed suggestion does not return until its job is changed, or the figure
is `RETURN_FACTOR` times as bad as it was. The same holds for one that was rolled back. An applied suggestion
is compared with the time since it was applied, while its job is as it left it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from wakeful.evolution.rules import Proposal, RunSummary, measure
from wakeful.evolution.suggestion import FIGURE, RuleName, Suggestion
from wakeful.values.duration import DAY, SECOND
from wakeful.values.json_value import Json

#: How much worse the figure must be for a suggestion to return that was dismissed or rolled back.
RETURN_FACTOR: Final = 1.5
#: An applied suggestion is evaluated after this time and this number of ticks, each week until the last one.
EVALUATE_AFTER_MS: Final = 3 * DAY
EVALUATE_TICKS: Final = 5
EVALUATE_UNTIL_MS: Final = 35 * DAY
#: A change of a figure by less than this part of it, or by less than the tolerance of its rule, is no change.
_CHANGE: Final = 0.1
_TOLERANCE: Final[Mapping[RuleName, float]] = {
    "stagger_peak": 1 * SECOND,
    "widen_interval": 0.05,
    "raise_timeout": 1 * SECOND,
    "pause_failing": 0.1,
}

Verdict = Literal[
    "improved",
    "unchanged",
    "worse",  # it is rolled back
    "too_early",  # too little time or too few ticks since it was applied
    "superseded",  # its job was changed or deleted since
]


class Evaluation(NamedTuple):
    """How an applied suggestion changed its figure."""

    verdict: Verdict
    figure: str
    before: float
    after: float | None = None
    #: the number of ticks since it was applied
    ticks: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return it as it is stored."""
        return dict(self._asdict())


class JobProposals(NamedTuple):
    """A job as it was analyzed, and what the rules suggest for it."""

    job_id: str
    job_name: str
    version: int
    updated_ms: int
    proposals: Sequence[Proposal]


class SuggestionChanges(NamedTuple):
    """What an analysis changes: new suggestions, open ones with new figures, and those to withdraw."""

    opened: list[Suggestion]
    refreshed: list[Suggestion]
    withdrawn: list[Suggestion]


def reconcile(
    workspace: str,
    agent: str,
    analyzed: Iterable[JobProposals],
    existing: Iterable[Suggestion],
    now_ms: int,
    new_id: Callable[[int], str],
) -> SuggestionChanges:
    """Return how the suggestions of an agent change. `existing` may leave out withdrawn ones."""
    open_ones: dict[tuple[str, RuleName], Suggestion] = {}
    decided: dict[tuple[str, RuleName], list[Suggestion]] = {}
    for each in existing:
        if each.status == "open":
            open_ones[each.job_id, each.rule] = each
        else:
            decided.setdefault((each.job_id, each.rule), []).append(each)
    changes = SuggestionChanges([], [], [])
    for job in analyzed:
        for proposal in job.proposals:
            old = open_ones.pop((job.job_id, proposal.rule), None)
            earlier = decided.get((job.job_id, proposal.rule), ())
            if any(_holds(each, job, proposal) for each in earlier):
                if old is not None:
                    changes.withdrawn.append(_withdraw(old, now_ms))
                continue
            new = Suggestion(
                id=new_id(now_ms) if old is None else old.id,
                workspace=workspace,
                agent=agent,
                job_id=job.job_id,
                job_name=job.job_name,
                rule=proposal.rule,
                status="open",
                figures=_compact(proposal.figures),
                change=_compact(proposal.change),
                before=_compact(proposal.before),
                job_version=job.version,
                created_ms=now_ms if old is None else old.created_ms,
                updated_ms=now_ms,
            )
            (changes.opened if old is None else changes.refreshed).append(new)
    changes.withdrawn.extend(_withdraw(each, now_ms) for each in open_ones.values())
    return changes


def evaluate(
    suggestion: Suggestion,
    job_version: int | None,
    runs: RunSummary,
    timeout_ms: int | None,
    now_ms: int,
) -> Evaluation:
    """Compare the figure of an applied suggestion with the runs since then.

    `job_version` is the current version of its job; None: the job was deleted.
    """
    rule, before = suggestion.rule, suggestion.figure
    found = Evaluation("superseded", FIGURE[rule], before)
    if job_version != suggestion.job_version:
        return found
    elapsed_ms = now_ms - (suggestion.decided_ms or now_ms)
    has_ticks = runs.ticks >= EVALUATE_TICKS or rule == "pause_failing"
    if elapsed_ms < EVALUATE_AFTER_MS or not has_ticks:
        return found._replace(verdict="too_early", ticks=runs.ticks)
    after = measure(rule, runs, timeout_ms, elapsed_ms)
    verdict: Verdict = "unchanged"
    if abs(after - before) > max(_TOLERANCE[rule], _CHANGE * before):
        verdict = "worse" if after > before else "improved"
    return Evaluation(verdict, FIGURE[rule], before, after, runs.ticks)


def is_evaluated(suggestion: Suggestion, now_ms: int) -> bool:
    """Return whether an evaluation looks at this suggestion: it was applied, not long ago, and still is."""
    if suggestion.status != "applied" or now_ms - (suggestion.decided_ms or 0) > EVALUATE_UNTIL_MS:
        return False
    return suggestion.evaluation is None or json.loads(suggestion.evaluation)["verdict"] != "superseded"


def _holds(decided: Suggestion, job: JobProposals, proposal: Proposal) -> bool:
    """Return whether an earlier decision still keeps this proposal from being suggested."""
    if decided.status == "applied":  # the evaluation comes first
        return decided.evaluated_ms is None and decided.job_version == job.version
    if decided.status not in ("dismissed", "rolled_back") or decided.decided_ms is None:
        return False
    return job.updated_ms <= decided.decided_ms and proposal.figure < RETURN_FACTOR * decided.figure


def _withdraw(suggestion: Suggestion, now_ms: int) -> Suggestion:
    return suggestion._replace(status="withdrawn", decided_ms=now_ms)


def _compact(values: Mapping[str, Json]) -> str:
    return json.dumps(dict(values), ensure_ascii=False, separators=(",", ":"))
