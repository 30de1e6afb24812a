"""Workers, channels, deliveries and settings as JSON."""

from __future__ import annotations

from wakeful.model.codec import JsonObject
from wakeful.service.admin.channels import ChannelState, TestResult
from wakeful.service.admin.settings import SettingState
from wakeful.service.admin.status import ExecutorState, WorkerState
from wakeful.service.row_codec import instant
from wakeful.store.deliveries import DeliveryView


def serialize_worker(worker: WorkerState) -> JsonObject:
    """Return a worker."""
    return {
        "name": worker.name,
        "alive": worker.alive,
        "startedAt": instant(worker.started_ms),
        "lastHeartbeatAt": instant(worker.beat_ms),
        "runs": worker.runs,
        "thisProcess": worker.is_this,
        "version": worker.version,
        "lanes": {lane: {"used": used, "size": size} for lane, (used, size) in worker.lanes.items()},
        "capabilities": dict(worker.capabilities),
    }


def serialize_executor(executor: ExecutorState) -> JsonObject:
    """Return an executor."""
    return {"name": executor.name, "runs": executor.runs, "lastHeartbeatAt": instant(executor.beat_ms)}


def serialize_channel(channel: ChannelState) -> JsonObject:
    """Return a channel, without its URL."""
    return {
        "name": channel.name,
        "kind": channel.kind,
        "takesRecipient": channel.takes_recipient,
        "deliveries": dict(channel.deliveries),
    }


def serialize_delivery(delivery: DeliveryView) -> JsonObject:
    """Return a delivery."""
    return {
        "runId": delivery.run_id,
        "agentId": delivery.agent,
        "jobId": delivery.job_id,
        "job": delivery.job_name,
        "channel": delivery.channel,
        "to": delivery.to,
        "state": delivery.state,
        "attempt": delivery.attempt,
        "at": instant(delivery.at_ms),
        "error": delivery.error,
    }


def serialize_test(result: TestResult) -> JsonObject:
    """Return the result of a test message."""
    return {"outcome": result.outcome, "error": result.error, "durationMs": result.duration_ms}


def serialize_setting(setting: SettingState) -> JsonObject:
    """Return a setting. The value of a secret is null."""
    return {
        "name": setting.name,
        "value": setting.value,
        "source": setting.source,
        "secret": setting.secret,
        "set": setting.is_set,
        "description": setting.description,
    }
