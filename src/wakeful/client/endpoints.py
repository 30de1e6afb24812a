"""The HTTP API of a server, one method per operation of a workspace.

The methods follow from the routes (`wakeful.api.http`): change those, and run `make generate`.
"""

# generated: endpoints
from __future__ import annotations

from collections.abc import Mapping, Sequence

from wakeful.client.connection import WorkspaceConnection
from wakeful.client.fields import document, given_fields
from wakeful.client.types import (
    AgentShape,
    BulkResultShape,
    BulkRunsShape,
    ChannelsShape,
    ChannelTestShape,
    CostShape,
    DeadLetterGroupsShape,
    DoctorShape,
    EntryShape,
    HeartbeatsShape,
    HookShape,
    InboxCountsShape,
    InboxDecisionShape,
    InboxItemShape,
    IncidentShape,
    InstanceShape,
    JobShape,
    JobSnippetsShape,
    KeyShape,
    PeaksShape,
    PersonShape,
    QuotaShape,
    ReceiptShape,
    ReleasedShape,
    ReportResultShape,
    RevisionShape,
    RunShape,
    SchedulePreviewShape,
    SearchResultShape,
    SessionShape,
    SettingShape,
    StartedInstancesShape,
    SubscriptionShape,
    SuggestionShape,
    TargetTestShape,
    VerifiedShape,
    WebSessionShape,
    WorkersShape,
    WorkflowShape,
)
from wakeful.model import Page
from wakeful.values.instance_names import instance_to_path
from wakeful.values.json_value import Json


class Endpoints(WorkspaceConnection):
    """The operations of a workspace. A query parameter or field that is None is not sent."""

    async def list_agents(self) -> list[AgentShape]:
        """List agents."""
        return await self._request_list("agents", dict, "GET agents")

    async def get_agent(self, agent: str) -> AgentShape:
        """Read an agent."""
        return await self._request("GET agents/{}", agent)

    async def put_agent(
        self, agent: str, body: Mapping[str, object], *, if_version: int | None = None
    ) -> AgentShape:
        """Create or change an agent."""
        return await self._request("PUT agents/{}", agent, body=document(body), if_version=if_version)

    async def update_agent(
        self, agent: str, body: Mapping[str, object], *, if_version: int | None = None
    ) -> AgentShape:
        """Change fields of an agent."""
        return await self._request("PATCH agents/{}", agent, body=document(body), if_version=if_version)

    async def delete_agent(self, agent: str) -> None:
        """Delete an agent."""
        await self._request("DELETE agents/{}", agent)

    async def rotate_agent_secret(self, agent: str) -> AgentShape:
        """Give an agent a new webhook secret."""
        return await self._request("POST agents/{}/rotate-secret", agent)

    async def send_message(
        self,
        agent: str,
        *,
        message: str,
        session: str | None = None,
        channel: str | None = None,
        to: str | None = None,
    ) -> ReceiptShape:
        """Send a message to an agent."""
        return await self._request(
            "POST agents/{}/messages",
            agent,
            body=document({"message": message})
            | given_fields({"session": session, "channel": channel, "to": to}),
        )

    async def list_sessions(
        self, agent: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[SessionShape]:
        """List the sessions of an agent."""
        return await self._request_page(
            "sessions", dict, "GET agents/{}/sessions", agent, query={"limit": limit, "cursor": cursor}
        )

    async def get_session(
        self, agent: str, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> SessionShape:
        """Read a session."""
        return await self._request(
            "GET agents/{}/sessions/{}", agent, session, query={"limit": limit, "cursor": cursor}
        )

    async def delete_session(self, agent: str, session: str) -> None:
        """Delete a session."""
        await self._request("DELETE agents/{}/sessions/{}", agent, session)

    async def send_signals(self, agent: str, body: Json, *, instance: str | None = None) -> dict[str, Json]:
        """Send signals to an instance."""
        return await self._request("POST agents/{}/signals", agent, query={"instance": instance}, body=body)

    async def list_all_instances(
        self,
        *,
        agent: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[InstanceShape]:
        """List the instances of all agents."""
        return await self._request_page(
            "instances",
            dict,
            "GET instances",
            query={"agent": agent, "status": status, "limit": limit, "cursor": cursor},
        )

    async def list_instances(
        self, agent: str, *, status: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[InstanceShape]:
        """List the instances of an agent."""
        return await self._request_page(
            "instances",
            dict,
            "GET agents/{}/instances",
            agent,
            query={"status": status, "limit": limit, "cursor": cursor},
        )

    async def get_instance(self, agent: str, instance: str) -> InstanceShape:
        """Read an instance."""
        return await self._request("GET agents/{}/instances/{}", agent, instance_to_path(instance))

    async def delete_instance(
        self, agent: str, instance: str, *, erase: bool | None = None
    ) -> InstanceShape | None:
        """Delete an instance."""
        return await self._request(
            "DELETE agents/{}/instances/{}",
            agent,
            instance_to_path(instance),
            query={"erase": erase},
            extra_timeout=30,
            optional=True,
        )

    async def start_instance(
        self,
        agent: str,
        instance: str,
        *,
        state: Mapping[str, object] | None = None,
        replace: bool | None = None,
    ) -> InstanceShape:
        """Start an instance."""
        return await self._request(
            "POST agents/{}/instances/{}/start",
            agent,
            instance_to_path(instance),
            body=given_fields({"state": state, "replace": replace}),
        )

    async def start_instances(
        self, agent: str, *, instances: Sequence[Mapping[str, object]], replace: bool | None = None
    ) -> StartedInstancesShape:
        """Start several instances."""
        return await self._request(
            "POST agents/{}/instances/start",
            agent,
            body=document({"instances": instances}) | given_fields({"replace": replace}),
            extra_timeout=300,
            lists={"instances": dict, "errors": dict},
        )

    async def stop_instance(self, agent: str, instance: str) -> InstanceShape:
        """Stop an instance."""
        return await self._request("POST agents/{}/instances/{}/stop", agent, instance_to_path(instance))

    async def pause_instance(self, agent: str, instance: str, *, note: str | None = None) -> InstanceShape:
        """Pause an instance."""
        return await self._request(
            "POST agents/{}/instances/{}/pause",
            agent,
            instance_to_path(instance),
            body=given_fields({"note": note}),
        )

    async def resume_instance(self, agent: str, instance: str) -> InstanceShape:
        """Resume an instance."""
        return await self._request("POST agents/{}/instances/{}/resume", agent, instance_to_path(instance))

    async def hibernate_instance(self, agent: str, instance: str) -> InstanceShape:
        """Hibernate an instance."""
        return await self._request("POST agents/{}/instances/{}/hibernate", agent, instance_to_path(instance))

    async def list_all_jobs(
        self,
        *,
        agent: str | None = None,
        include_disabled: bool | None = None,
        label: Sequence[str] | None = None,
        q: str | None = None,
        state: str | None = None,
        creator: str | None = None,
        created_by: str | None = None,
        schedule: str | None = None,
        target: str | None = None,
        internal: str | None = None,
        sort: str | None = None,
        count: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobShape]:
        """List the jobs of all agents."""
        return await self._request_page(
            "jobs",
            dict,
            "GET jobs",
            query={
                "agent": agent,
                "include_disabled": include_disabled,
                "label": label,
                "q": q,
                "state": state,
                "creator": creator,
                "created_by": created_by,
                "schedule": schedule,
                "target": target,
                "internal": internal,
                "sort": sort,
                "count": count,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def find_job(self, name: str) -> JobShape:
        """Find a job of any agent."""
        return await self._request("GET jobs/{}", name)

    async def list_jobs(
        self,
        agent: str,
        *,
        include_disabled: bool | None = None,
        label: Sequence[str] | None = None,
        q: str | None = None,
        state: str | None = None,
        creator: str | None = None,
        created_by: str | None = None,
        schedule: str | None = None,
        target: str | None = None,
        internal: str | None = None,
        sort: str | None = None,
        count: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JobShape]:
        """List the jobs of an agent."""
        return await self._request_page(
            "jobs",
            dict,
            "GET agents/{}/jobs",
            agent,
            query={
                "include_disabled": include_disabled,
                "label": label,
                "q": q,
                "state": state,
                "creator": creator,
                "created_by": created_by,
                "schedule": schedule,
                "target": target,
                "internal": internal,
                "sort": sort,
                "count": count,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def create_job(self, agent: str, body: Mapping[str, object]) -> JobShape:
        """Create a job."""
        return await self._request("POST agents/{}/jobs", agent, body=document(body))

    async def create_jobs(
        self,
        agent: str,
        *,
        jobs: Sequence[Mapping[str, object]],
        brief: bool | None = None,
        dry_run: bool | None = None,
    ) -> list[JobShape]:
        """Create several jobs."""
        return await self._request_list(
            "jobs",
            dict,
            "POST agents/{}/jobs/bulk",
            agent,
            query={"brief": brief, "dry_run": dry_run},
            body=document({"jobs": jobs}),
            extra_timeout=300,
            optional=True,
        )

    async def get_job(self, agent: str, name: str) -> JobShape:
        """Read a job."""
        return await self._request("GET agents/{}/jobs/{}", agent, name)

    async def upsert_job(
        self,
        agent: str,
        name: str,
        body: Mapping[str, object],
        *,
        dry_run: bool | None = None,
        if_version: int | None = None,
    ) -> JobShape | None:
        """Create a job, or change it to match the document."""
        return await self._request(
            "PUT agents/{}/jobs/{}",
            agent,
            name,
            query={"dry_run": dry_run},
            body=document(body),
            if_version=if_version,
            optional=True,
        )

    async def update_job(
        self, agent: str, name: str, body: Mapping[str, object], *, if_version: int | None = None
    ) -> JobShape:
        """Change fields of a job."""
        return await self._request(
            "PATCH agents/{}/jobs/{}", agent, name, body=document(body), if_version=if_version
        )

    async def delete_job(self, agent: str, name: str, *, if_version: int | None = None) -> list[str]:
        """Delete a job."""
        return await self._request_list(
            "warnings", str, "DELETE agents/{}/jobs/{}", agent, name, if_version=if_version, optional=True
        )

    async def pause_job(
        self,
        agent: str,
        name: str,
        *,
        note: str | None = None,
        until: object = None,
        if_version: int | None = None,
    ) -> JobShape:
        """Pause a job."""
        return await self._request(
            "POST agents/{}/jobs/{}/pause",
            agent,
            name,
            body=given_fields({"note": note, "until": until}),
            if_version=if_version,
        )

    async def resume_job(self, agent: str, name: str, *, if_version: int | None = None) -> JobShape:
        """Resume a job."""
        return await self._request("POST agents/{}/jobs/{}/resume", agent, name, if_version=if_version)

    async def skip_next_tick(self, agent: str, name: str, *, if_version: int | None = None) -> JobShape:
        """Skip the next tick of a job."""
        return await self._request("POST agents/{}/jobs/{}/skip-next", agent, name, if_version=if_version)

    async def rotate_secret(self, agent: str, name: str, *, if_version: int | None = None) -> JobShape:
        """Give a job a new webhook secret."""
        return await self._request("POST agents/{}/jobs/{}/rotate-secret", agent, name, if_version=if_version)

    async def run_job(
        self,
        agent: str,
        name: str,
        *,
        mode: str | None = None,
        payload: object = None,
        overlap_policy: str | None = None,
        if_version: int | None = None,
    ) -> RunShape | None:
        """Run a job now."""
        return await self._request(
            "POST agents/{}/jobs/{}/run",
            agent,
            name,
            body=given_fields({"mode": mode, "payload": payload, "overlapPolicy": overlap_policy}),
            if_version=if_version,
            optional=mode == "due",
        )

    async def backfill_job(
        self,
        agent: str,
        name: str,
        *,
        start: object,
        end: object,
        overlap_policy: str | None = None,
        if_version: int | None = None,
    ) -> dict[str, Json]:
        """Run the ticks of a past range."""
        return await self._request(
            "POST agents/{}/jobs/{}/backfill",
            agent,
            name,
            body=document({"start": start, "end": end}) | given_fields({"overlapPolicy": overlap_policy}),
            if_version=if_version,
        )

    async def list_revisions(self, agent: str, name: str) -> list[RevisionShape]:
        """List the revisions of a job."""
        return await self._request_list("revisions", dict, "GET agents/{}/jobs/{}/revisions", agent, name)

    async def restore_revision(
        self, agent: str, name: str, revision: int, *, if_version: int | None = None
    ) -> JobShape:
        """Restore a revision of a job."""
        return await self._request(
            "POST agents/{}/jobs/{}/revisions/{}/restore", agent, name, revision, if_version=if_version
        )

    async def preview_schedule(self, body: Mapping[str, object]) -> SchedulePreviewShape:
        """Preview a schedule."""
        return await self._request(
            "POST schedules/preview", body=document(body), lists={"ticks": dict, "clockChanges": dict}
        )

    async def test_target(self, agent: str, body: Mapping[str, object]) -> TargetTestShape:
        """Test a target."""
        return await self._request(
            "POST agents/{}/jobs/test-target", agent, body=document(body), extra_timeout=30
        )

    async def write_job_snippets(self, agent: str, body: Mapping[str, object]) -> JobSnippetsShape:
        """Write a job as YAML, curl, CLI and Python."""
        return await self._request("POST agents/{}/jobs/snippets", agent, body=document(body))

    async def get_hook(self, agent: str, name: str) -> HookShape:
        """Show the trigger URL of a job."""
        return await self._request("GET agents/{}/jobs/{}/hook", agent, name)

    async def create_hook(self, agent: str, name: str, *, if_version: int | None = None) -> HookShape:
        """Give a job a new trigger URL."""
        return await self._request("POST agents/{}/jobs/{}/hook", agent, name, if_version=if_version)

    async def delete_hook(self, agent: str, name: str, *, if_version: int | None = None) -> None:
        """Delete the trigger URL of a job."""
        await self._request("DELETE agents/{}/jobs/{}/hook", agent, name, if_version=if_version)

    async def pause_jobs(self, body: Mapping[str, object]) -> BulkResultShape:
        """Pause several jobs."""
        return await self._request(
            "POST jobs/pause", body=document(body), extra_timeout=300, lists={"jobs": dict, "errors": dict}
        )

    async def resume_jobs(self, body: Mapping[str, object]) -> BulkResultShape:
        """Resume several jobs."""
        return await self._request(
            "POST jobs/resume", body=document(body), extra_timeout=300, lists={"jobs": dict, "errors": dict}
        )

    async def run_jobs(self, body: Mapping[str, object]) -> BulkRunsShape:
        """Run several jobs."""
        return await self._request(
            "POST jobs/run",
            body=document(body),
            extra_timeout=300,
            lists={"jobs": dict, "runs": dict, "notDue": dict, "errors": dict},
        )

    async def delete_jobs(self, body: Mapping[str, object]) -> BulkResultShape:
        """Delete several jobs."""
        return await self._request(
            "POST jobs/delete", body=document(body), extra_timeout=300, lists={"jobs": dict, "errors": dict}
        )

    async def claim_runs(
        self,
        *,
        worker: str,
        agents: Sequence[str] | None = None,
        lanes: Sequence[str] | None = None,
        limit: int | None = None,
        wait_ms: int | None = None,
        claim_id: str | None = None,
    ) -> list[RunShape]:
        """Claim runs to execute."""
        return await self._request_list(
            "runs",
            dict,
            "POST runs/claim",
            body=document({"worker": worker})
            | given_fields(
                {"agents": agents, "lanes": lanes, "limit": limit, "waitMs": wait_ms, "claimId": claim_id}
            ),
            extra_timeout=(wait_ms or 0) / 1000,
        )

    async def release_runs(
        self, *, worker: str, claim_id: str | None = None, runs: Sequence[Mapping[str, object]] | None = None
    ) -> ReleasedShape:
        """Return claimed runs without executing them."""
        return await self._request(
            "POST runs/release",
            body=document({"worker": worker}) | given_fields({"claimId": claim_id, "runs": runs}),
            lists={"released": str, "lost": str},
        )

    async def heartbeat_runs(
        self,
        *,
        runs: Sequence[Mapping[str, object]],
        worker: str | None = None,
        waiting_for: Mapping[str, object] | None = None,
    ) -> HeartbeatsShape:
        """Renew the leases of claimed runs."""
        return await self._request(
            "POST runs/heartbeat",
            body=document({"runs": runs}) | given_fields({"worker": worker, "waitingFor": waiting_for}),
            lists={"renewed": str, "lost": str},
        )

    async def complete_runs(self, *, runs: Sequence[Mapping[str, object]]) -> list[ReportResultShape]:
        """Report how several runs ended."""
        return await self._request_list("runs", dict, "POST runs/complete", body=document({"runs": runs}))

    async def heartbeat_run(self, run_id: str, *, attempt: int, worker: str | None = None) -> RunShape:
        """Renew the lease of a claimed run."""
        return await self._request(
            "POST runs/{}/heartbeat",
            run_id,
            body=document({"attempt": attempt}) | given_fields({"worker": worker}),
        )

    async def complete_run(self, run_id: str, body: Mapping[str, object]) -> RunShape:
        """Report how a run ended."""
        return await self._request("POST runs/{}/complete", run_id, body=document(body))

    async def verify_run(
        self, run_id: str, *, verified: bool, reason: str | None = None, attempt: int | None = None
    ) -> RunShape:
        """Confirm or reject the work of a run."""
        return await self._request(
            "POST runs/{}/verify",
            run_id,
            body=document({"verified": verified}) | given_fields({"reason": reason, "attempt": attempt}),
        )

    async def list_all_runs(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        job_id: str | None = None,
        dead: bool | None = None,
        before: str | None = None,
        state: Sequence[str] | None = None,
        trigger: str | None = None,
        instance: str | None = None,
        to_confirm: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[RunShape]:
        """List the runs of all agents."""
        return await self._request_page(
            "runs",
            dict,
            "GET runs",
            query={
                "agent": agent,
                "job": job,
                "job_id": job_id,
                "dead": dead,
                "before": before,
                "state": state,
                "trigger": trigger,
                "instance": instance,
                "to_confirm": to_confirm,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def list_runs(
        self,
        agent: str,
        *,
        state: Sequence[str] | None = None,
        trigger: str | None = None,
        instance: str | None = None,
        to_confirm: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[RunShape]:
        """List the runs of an agent."""
        return await self._request_page(
            "runs",
            dict,
            "GET agents/{}/runs",
            agent,
            query={
                "state": state,
                "trigger": trigger,
                "instance": instance,
                "to_confirm": to_confirm,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def wake_agent(self, agent: str, *, payload: object = None) -> RunShape:
        """Wake an agent now."""
        return await self._request("POST agents/{}/runs", agent, body=given_fields({"payload": payload}))

    async def list_job_runs(
        self,
        agent: str,
        name: str,
        *,
        state: Sequence[str] | None = None,
        trigger: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[RunShape]:
        """List the runs of a job."""
        return await self._request_page(
            "runs",
            dict,
            "GET agents/{}/jobs/{}/runs",
            agent,
            name,
            query={"state": state, "trigger": trigger, "limit": limit, "cursor": cursor},
        )

    async def get_run(self, run_id: str) -> RunShape:
        """Read a run."""
        return await self._request("GET runs/{}", run_id)

    async def cancel_run(self, run_id: str) -> RunShape:
        """Cancel a waiting run."""
        return await self._request("POST runs/{}/cancel", run_id)

    async def stop_run(self, run_id: str) -> RunShape:
        """Stop a running run."""
        return await self._request("POST runs/{}/stop", run_id)

    async def replay_run(self, run_id: str) -> RunShape:
        """Replay a dead letter."""
        return await self._request("POST runs/{}/replay", run_id)

    async def search(self, *, q: str | None = None) -> SearchResultShape:
        """Find jobs, agents and runs."""
        return await self._request(
            "GET search", query={"q": q}, lists={"jobs": dict, "agents": str, "runs": dict}
        )

    async def list_dead_letters(
        self,
        *,
        agent: str | None = None,
        job: str | None = None,
        cause: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[RunShape]:
        """List dead letters."""
        return await self._request_page(
            "deadLetters",
            dict,
            "GET dead-letters",
            query={"agent": agent, "job": job, "cause": cause, "limit": limit, "cursor": cursor},
        )

    async def group_dead_letters(
        self, *, agent: str | None = None, job: str | None = None
    ) -> DeadLetterGroupsShape:
        """Group dead letters by cause."""
        return await self._request(
            "GET dead-letters/groups", query={"agent": agent, "job": job}, lists={"groups": dict}
        )

    async def replay_dead_letters(self, body: Mapping[str, object]) -> Page[str]:
        """Replay dead letters."""
        return await self._request_page("replayed", str, "POST dead-letters/replay", body=document(body))

    async def discard_dead_letters(self, body: Mapping[str, object]) -> Page[str]:
        """Discard dead letters."""
        return await self._request_page("discarded", str, "POST dead-letters/discard", body=document(body))

    async def list_incidents(
        self,
        *,
        state: str | None = None,
        agent: str | None = None,
        job: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[IncidentShape]:
        """List incidents."""
        return await self._request_page(
            "incidents",
            dict,
            "GET incidents",
            query={"state": state, "agent": agent, "job": job, "limit": limit, "cursor": cursor},
        )

    async def get_incident(self, incident_id: str) -> IncidentShape:
        """Get an incident."""
        return await self._request("GET incidents/{}", incident_id)

    async def acknowledge_incident(self, incident_id: str, *, note: str | None = None) -> IncidentShape:
        """Acknowledge an incident."""
        return await self._request("POST incidents/{}/ack", incident_id, body=given_fields({"note": note}))

    async def list_suggestions(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        job: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SuggestionShape]:
        """List suggestions."""
        return await self._request_page(
            "suggestions",
            dict,
            "GET suggestions",
            query={"status": status, "agent": agent, "job": job, "limit": limit, "cursor": cursor},
        )

    async def get_suggestion(self, suggestion_id: str) -> SuggestionShape:
        """Get a suggestion."""
        return await self._request("GET suggestions/{}", suggestion_id)

    async def apply_suggestion(self, suggestion_id: str) -> SuggestionShape:
        """Apply a suggestion."""
        return await self._request("POST suggestions/{}/apply", suggestion_id)

    async def dismiss_suggestion(self, suggestion_id: str) -> SuggestionShape:
        """Dismiss a suggestion."""
        return await self._request("POST suggestions/{}/dismiss", suggestion_id)

    async def roll_back_suggestion(self, suggestion_id: str) -> SuggestionShape:
        """Roll back an applied suggestion."""
        return await self._request("POST suggestions/{}/rollback", suggestion_id)

    async def list_inbox(
        self,
        *,
        kind: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[InboxItemShape]:
        """List what waits for a person."""
        return await self._request_page(
            "items", dict, "GET inbox", query={"kind": kind, "agent": agent, "limit": limit, "cursor": cursor}
        )

    async def count_inbox(self, *, agent: str | None = None) -> InboxCountsShape:
        """Count what waits for a person."""
        return await self._request("GET inbox/counts", query={"agent": agent})

    async def approve_item(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecisionShape:
        """Approve what waits."""
        return await self._request(
            "POST inbox/{}/approve", item_id, body=given_fields({"reason": reason, "version": version})
        )

    async def reject_item(
        self, item_id: str, *, reason: str | None = None, version: int | None = None
    ) -> InboxDecisionShape:
        """Reject what waits."""
        return await self._request(
            "POST inbox/{}/reject", item_id, body=given_fields({"reason": reason, "version": version})
        )

    async def list_key_sessions(self, key_id: str) -> list[WebSessionShape]:
        """List the sign-in sessions of a key."""
        return await self._request_list("sessions", dict, "GET keys/{}/sessions", key_id)

    async def end_key_sessions(self, key_id: str) -> None:
        """End all sign-in sessions of a key."""
        await self._request("DELETE keys/{}/sessions", key_id)

    async def end_key_session(self, key_id: str, session_id: str) -> None:
        """End a sign-in session."""
        await self._request("DELETE keys/{}/sessions/{}", key_id, session_id)

    async def get_cost(
        self,
        *,
        from_: str | None = None,
        to: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
    ) -> CostShape:
        """Tokens and cost."""
        return await self._request(
            "GET cost", query={"from": from_, "to": to, "agent": agent, "limit": limit}
        )

    async def list_workers(self) -> WorkersShape:
        """List workers and executors."""
        return await self._request("GET workers", lists={"workers": dict, "executors": dict})

    async def list_channels(self) -> ChannelsShape:
        """List channels."""
        return await self._request("GET channels", lists={"channels": dict, "deliveries": dict})

    async def test_channel(self, channel: str, *, to: str | None = None) -> ChannelTestShape:
        """Send a test message."""
        return await self._request(
            "POST channels/{}/test", channel, body=given_fields({"to": to}), extra_timeout=30
        )

    async def list_settings(self) -> list[SettingShape]:
        """List settings."""
        return await self._request_list("settings", dict, "GET settings")

    async def list_keys(self) -> list[KeyShape]:
        """List keys."""
        return await self._request_list("keys", dict, "GET keys")

    async def create_key(
        self,
        *,
        role: str,
        name: str | None = None,
        agent: str | None = None,
        expires_at: object = None,
        workspace: str | None = None,
    ) -> KeyShape:
        """Create a key."""
        return await self._request(
            "POST keys",
            body=document({"role": role})
            | given_fields({"name": name, "agent": agent, "expiresAt": expires_at, "workspace": workspace}),
        )

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key."""
        await self._request("DELETE keys/{}", key_id)

    async def list_subscriptions(
        self, *, agent: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[SubscriptionShape]:
        """List subscriptions to MCP events."""
        return await self._request_page(
            "subscriptions",
            dict,
            "GET subscriptions",
            query={"agent": agent, "limit": limit, "cursor": cursor},
        )

    async def end_subscription(self, subscription_id: str) -> None:
        """End a subscription to MCP events."""
        await self._request("DELETE subscriptions/{}", subscription_id)

    async def list_people(self) -> list[PersonShape]:
        """List people."""
        return await self._request_list("people", dict, "GET people")

    async def remove_person(self, person_id: str) -> None:
        """Remove a person."""
        await self._request("DELETE people/{}", person_id)

    async def list_quotas(self) -> list[QuotaShape]:
        """List limits."""
        return await self._request_list("quotas", dict, "GET quotas")

    async def set_quota(
        self, *, bucket: str, limit: int | None, agent: str | None = None, if_version: int | None = None
    ) -> list[QuotaShape]:
        """Set a limit."""
        return await self._request_list(
            "quotas",
            dict,
            "PUT quotas",
            body=document({"bucket": bucket, "limit": limit}) | given_fields({"agent": agent}),
            if_version=if_version,
        )

    async def list_audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[EntryShape]:
        """Read the audit log."""
        return await self._request_page(
            "entries",
            dict,
            "GET audit",
            query={
                "actor": actor,
                "action": action,
                "subject": subject,
                "since": since,
                "until": until,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def verify_audit(
        self, *, after: int | None = None, hash: str | None = None, limit: int | None = None
    ) -> VerifiedShape:
        """Verify the audit log."""
        return await self._request(
            "GET audit/verify", query={"after": after, "hash": hash, "limit": limit}, extra_timeout=600
        )

    async def get_workflow(self, workflow_id: str, version: int) -> WorkflowShape:
        """Read a version of a workflow."""
        return await self._request("GET workflows/{}/{}", workflow_id, version)

    async def put_workflow(self, workflow_id: str, version: int, body: Mapping[str, object]) -> WorkflowShape:
        """Store a version of a workflow."""
        return await self._request("PUT workflows/{}/{}", workflow_id, version, body=document(body))

    async def get_status(self) -> dict[str, Json]:
        """Status of the workspace."""
        return await self._request("GET status")

    async def get_doctor(self) -> DoctorShape:
        """Checks of the installation."""
        return await self._request("GET doctor")

    async def get_slo(self, *, hours: int | None = None) -> dict[str, Json]:
        """Service level objectives."""
        return await self._request("GET slo", query={"hours": hours})

    async def get_peaks(self, *, agent: str | None = None) -> PeaksShape:
        """Load of the coming week."""
        return await self._request("GET peaks", query={"agent": agent})


# generated: end
