"""The schemas of what is known about a job before it is saved."""

from __future__ import annotations

from typing import Final

from wakeful.api.http.schemas.jobs import DOCUMENT, NORMAL_SCHEDULE
from wakeful.api.http.schemas.parts import (
    ANY,
    SECRET,
    SLUG,
    TEXT,
    WHOLE,
    Schema,
    list_of,
    or_null,
    ref,
    request,
    response,
    text,
    whole,
)
from wakeful.api.http.schemas.resources import schema_of_class
from wakeful.document.fields import RESPONSE_ONLY
from wakeful.model import operations
from wakeful.schedule.schedules import LONGEST_TEXT
from wakeful.service.jobs import schedule_previews, target_tests

#: An instant with the offset of a zone.
_LOCAL: Final[Schema] = {
    "type": "string",
    "format": "date-time",
    "description": "ISO 8601, in the zone of the schedule.",
}
_OFFSET: Final[Schema] = {"type": "string", "examples": ["+02:00"]}
_JOB: Final[Schema] = or_null(text(LONGEST_TEXT))

SCHEMAS: Final[dict[str, Schema]] = {
    "SchedulePreviewRequest": request(
        {
            **{name: or_null(DOCUMENT[name]) for name in schedule_previews.FIELDS},
            "agentId": {**or_null(SLUG), "description": "The agent of the job; it may have a default zone."},
            "job": {**_JOB, "description": "The job that the schedule is for: its name or id."},
            "count": {
                **or_null(whole(1, schedule_previews.MAX_TICKS)),
                "description": f"How many ticks; {schedule_previews.DEFAULT_TICKS} by default.",
            },
        }
    ),
    "SchedulePreview": response(
        {
            "schedule": {**or_null(NORMAL_SCHEDULE), "description": "The normal form; null with `after`."},
            "text": {"description": "The schedule as people write it."},
            "tz": TEXT,
            "explain": {"type": "string", "description": "The schedule in words."},
            "ticks": list_of(
                response(
                    {
                        "at": _LOCAL,
                        "atMs": WHOLE,
                        "offset": _OFFSET,
                        "dst": {
                            **or_null(ref("DstEffect")),
                            "description": "`moved`: its time is in a gap; `first`, `second`: there are two.",
                        },
                        "note": {**or_null(TEXT), "description": "What the clock change does to it."},
                    }
                )
            ),
            "clockChanges": list_of(
                response(
                    {
                        "at": _LOCAL,
                        "atMs": WHOLE,
                        "before": _OFFSET,
                        "after": _OFFSET,
                        "skipped": {
                            **or_null(TEXT),
                            "description": "The time of day that does not exist then and does not fire.",
                        },
                        "note": TEXT,
                    }
                )
            ),
            "peak": or_null(ref("PeakAdvice")),
        },
        about="The next ticks of a schedule, and the clock changes between them.",
    ),
    "PeakAdvice": response(
        {
            "message": TEXT,
            "at": _LOCAL,
            "starts": WHOLE,
            "quietAt": _LOCAL,
            "quietStarts": WHOLE,
            "schedule": {**or_null(TEXT), "description": "The schedule at the quieter minute."},
            "jitter": {"type": "string", "description": "A jitter that spreads the starts."},
        },
        about="Many other jobs start at the next tick, and few at a minute nearby.",
    ),
    "TargetTestRequest": request(
        {
            **{name: or_null(DOCUMENT[name]) for name in target_tests.FIELDS},
            "job": {
                **_JOB,
                "description": "A job, whose secret signs the request. Fields that are left out are those of "
                "the job.",
            },
        }
    ),
    "TargetTest": schema_of_class(
        operations.TargetTest, "secret", optional=("secret",), others={"secret": SECRET}
    ),
    "JobDraft": request(
        dict.fromkeys((*DOCUMENT, *RESPONSE_ONLY), ANY),
        about="The document of a job, which need not be valid yet.",
    ),
    "JobSnippets": response(
        {
            "yaml": {"type": "string", "description": "A file for `wakeful apply`."},
            "curl": TEXT,
            "cli": {"type": "string", "description": "`wakeful add`."},
            "python": TEXT,
        },
        about="Texts that create a job. The key is not in them.",
    ),
}
