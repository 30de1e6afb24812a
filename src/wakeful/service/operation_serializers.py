"""The JSON of what operators see."""

from __future__ import annotations

from typing import Final

from wakeful.model import operations
from wakeful.model.codec import JsonObject
from wakeful.run.dead_letter_groups import DeadLetterGroup
from wakeful.service.admin.channels import ChannelState, TestResult
from wakeful.service.admin.settings import SettingState
from wakeful.service.admin.status import ExecutorState, Processes, WorkerState
from wakeful.service.auth.web_sessions import SignInLink
from wakeful.service.jobs.target_tests import TargetTest
from wakeful.service.row_codec import RowCodec, instant
from wakeful.service.runs.dead_letters import DeadLetterGroups
from wakeful.store.deliveries import DeliveryView
from wakeful.store.sql.web_sessions import WebSessionRow
from wakeful.values.json_value import Json


def _lanes(worker: WorkerState) -> dict[str, dict[str, int]]:
    return {lane: {"used": used, "size": size} for lane, (used, size) in worker.lanes.items()}


def _request(test: TargetTest) -> JsonObject | None:
    sent = test.exchange
    if sent is None:
        return None
    return {"method": "POST", "url": sent.url, "headers": {**sent.headers}, "body": sent.body}


def _response(test: TargetTest) -> JsonObject | None:
    sent = test.exchange
    if sent is None or sent.status is None:
        return None
    headers: list[Json] = [[name, value] for name, value in sent.response_headers]
    return {"status": sent.status, "headers": headers, "body": sent.text}


PROCESSES: Final = RowCodec(
    operations.Workers,
    Processes,
    workers=RowCodec(
        operations.Worker, WorkerState, last_heartbeat_at="beat_ms", this_process="is_this", lanes=_lanes
    ),
    executors=RowCodec(operations.Executor, ExecutorState, last_heartbeat_at="beat_ms"),
)
CHANNELS: Final = RowCodec(operations.Channel, ChannelState)
DELIVERIES: Final = RowCodec(operations.Delivery, DeliveryView, job="job_name")
CHANNEL_TESTS: Final = RowCodec(operations.ChannelTest, TestResult)
SETTINGS: Final = RowCodec(operations.Setting, SettingState, set="is_set")
DEAD_LETTER_GROUPS: Final = RowCodec(
    operations.DeadLetterGroups,
    DeadLetterGroups,
    groups=RowCodec(
        operations.DeadLetterGroup,
        DeadLetterGroup,
        job="job_name",
        count="runs",
        first_failed_at="first_ms",
        last_failed_at="last_ms",
        newest_run_id="newest_id",
    ),
    counted="scanned",
)
WEB_SESSIONS: Final = RowCodec(operations.WebSession, WebSessionRow)
_TARGET_TESTS: Final = RowCodec(operations.TargetTest, TargetTest, request=_request, response=_response)


def serialize_target_test(test: TargetTest) -> JsonObject:
    """Return the result of a test, with the request and the response if one was sent."""
    return _TARGET_TESTS.to_json(test, **({} if test.secret is None else {"secret": test.secret}))


def serialize_sign_in_link(link: SignInLink, base_url: str) -> JsonObject:
    """Return a new sign-in link. The token is in the fragment, which browsers send to no server."""
    return {"url": f"{base_url}/sign-in#{link.token}", "expiresAt": instant(link.expires_ms)}
