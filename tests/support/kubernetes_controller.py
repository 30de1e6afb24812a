"""The Job controller and the kubelet of a test API server.

A Job gets one Pod. What happens to the Pod is decided by the test; its status and that of the Job change as
in a cluster (Kubernetes 1.33): first the Pod, then the Job with `SuccessCriteriaMet` or `FailureTarget`, then
with `Complete` or `Failed`.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from tests.support.kubernetes_rules import JOB_NAME
from tests.support.kubernetes_status import Object
from tests.support.kubernetes_store import ObjectStore, now

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MESSAGES = {
    "CompletionsReached": "Reached expected number of succeeded pods",
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
    "JobSuspended": "Job suspended",
    "JobResumed": "Job resumed",
}


def generated(base: str) -> str:
    """Return a name with a random suffix, as `generateName` makes it."""
    return base[:58] + "".join(random.choices(_LETTERS, k=5))


class JobController:
    """Creates Pods for Jobs, and changes both as a test says."""

    def __init__(self, store: ObjectStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        #: what the container of a Pod has written, by the name of the Pod
        self.logs: dict[str, bytes] = {}
        #: the names of all Pods, in the order of their creation
        self._created: list[str] = []

    # --- what the API server does with a Job ------------------------------------------------------------

    def job_changed(self, name: str) -> None:
        """Create the Pod of a Job that is new or resumed; remove that of a suspended one."""
        job = self.job(name)
        if _ended(job) or "deletionTimestamp" in job["metadata"]:
            return
        pods = self._living(name)
        if job["spec"]["suspend"]:
            for pod in pods:
                self._remove(pod)
            suspended = _condition("Suspended", "JobSuspended")
            self._set_status(job, active=0, ready=0, startTime=None, conditions=[suspended])
        elif not pods:
            if job.get("status", {}).get("conditions"):
                resumed = {**_condition("Suspended", "JobResumed"), "status": "False"}
                job = self._set_status(job, startTime=now(), conditions=[resumed])
            self._create_pod(job)

    def job_deleted(self, name: str, uid: str, policy: str) -> None:
        """Collect the Pods of a deleted Job; with the policy `Orphan` they stay, without an owner."""
        for pod in self._pods(name):
            if all(owner["uid"] != uid for owner in pod["metadata"].get("ownerReferences", ())):
                continue
            if policy == "Orphan":
                del pod["metadata"]["ownerReferences"]
                self._store.put(("pods", self._namespace, pod["metadata"]["name"]), pod)
            else:
                self._remove(pod)

    # --- what a test says -------------------------------------------------------------------------------

    def resume(self, name: str) -> None:
        """A queue of the cluster, or a person, resumes a suspended Job."""
        job = self.job(name)
        job["spec"]["suspend"] = False
        self._store.put(("jobs", self._namespace, name), job)
        self.job_changed(name)

    def job(self, name: str) -> Object:
        """Return a Job."""
        job = self._store.get(("jobs", self._namespace, name))
        assert job is not None, f"there is no Job {name}"
        return job

    def pod(self, name: str) -> Object:
        """Return the newest Pod of a Job."""
        pods = self._pods(name)
        assert pods, f"the Job {name} has no Pod"
        return max(pods, key=lambda pod: self._created.index(pod["metadata"]["name"]))

    def waiting(self, name: str, reason: str = "ImagePullBackOff", message: str = "") -> None:
        """The container cannot start, for example because its image is not found."""
        pod = self.pod(name)
        state = {"reason": reason, "message": message or f"{reason}: {_image(pod)}"}
        self._set_pod(pod, phase="Pending", state={"waiting": state})

    def unschedulable(self, name: str) -> None:
        """No node has room for the Pod."""
        pod = self.pod(name)
        pod["spec"].pop("nodeName", None)
        pod["status"] = {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    "lastTransitionTime": now(),
                }
            ],
        }
        self._put(pod)

    def start_pod(self, name: str, log: str | bytes = b"") -> None:
        """The container runs, and has written `log`."""
        pod = self.pod(name)
        self.logs[pod["metadata"]["name"]] = _bytes(log)
        self._set_pod(pod, phase="Running", state={"running": {"startedAt": now()}}, ready=True)
        self._set_status(self.job(name), active=1, ready=1)

    def finish_pod(
        self, name: str, exit_code: int = 0, log: str | bytes = b"", reason: str | None = None
    ) -> None:
        """The container has ended. `reason` is that of its state (`OOMKilled`) or of the Pod (`Evicted`).

        After a failure the Job has failed, or gets another Pod while its `backoffLimit` allows it.
        """
        pod, job = self.pod(name), self.job(name)
        own = pod["metadata"]["name"]
        self.logs[own] = self.logs.get(own, b"") + _bytes(log)
        if reason == "Evicted":
            # The kubelet that evicts a Pod writes no state of its containers.
            pod["status"] |= {
                "phase": "Failed",
                "reason": reason,
                "message": "The node was low on resource: memory.",
            }
            pod["status"].pop("containerStatuses", None)
            self._put(pod)
            self._pod_failed(job)
            return
        terminated = {
            "exitCode": exit_code,
            "reason": reason or ("Error" if exit_code else "Completed"),
            "startedAt": now(),
            "finishedAt": now(),
            "containerID": f"containerd://{uuid4().hex}",
        }
        if exit_code == 0:
            self._set_pod(pod, phase="Succeeded", state={"terminated": terminated})
            self._end(job, "SuccessCriteriaMet", "Complete", "CompletionsReached", succeeded=1)
        elif pod["spec"]["restartPolicy"] == "OnFailure":
            self._restarted(job, pod, terminated)
        else:
            self._set_pod(pod, phase="Failed", state={"terminated": terminated})
            self._pod_failed(job)

    def delete_pod(self, name: str) -> None:
        """The Pod is gone, for example with its node. The Job counts it as failed."""
        self._remove(self.pod(name))
        self._pod_failed(self.job(name))

    def exceed_deadline(self, name: str) -> None:
        """The Job has reached its `activeDeadlineSeconds`: its Pod is removed."""
        job = self.job(name)
        assert "activeDeadlineSeconds" in job["spec"], "the Job has no deadline"
        for pod in self._living(name):
            self._remove(pod)
        failed = job["status"].get("failed", 0) + 1
        self._end(job, "FailureTarget", "Failed", "DeadlineExceeded", failed=failed)

    # --- Pods ------------------------------------------------------------------------------------------

    def _create_pod(self, job: Object) -> None:
        template, name = job["spec"]["template"], job["metadata"]["name"]
        self._created.append(generated(f"{name}-"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._created[-1],
                "generateName": f"{name}-",
                "namespace": self._namespace,
                "uid": str(uuid4()),
                "creationTimestamp": now(),
                "labels": dict(template["metadata"]["labels"]),
                "annotations": dict(template["metadata"].get("annotations", {})),
                "ownerReferences": [
                    {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "name": name,
                        "uid": job["metadata"]["uid"],
                        "controller": True,
                        "blockOwnerDeletion": True,
                    }
                ],
            },
            "spec": {**template["spec"], "nodeName": "node-1"},
            "status": {},
        }
        self._set_pod(pod, phase="Pending", state={"waiting": {"reason": "ContainerCreating"}})
        self._set_status(job, active=1, ready=0)

    def _set_pod(
        self, pod: Object, phase: str, state: Object, ready: bool = False, restarts: int | None = None
    ) -> None:
        """Store a Pod with the state of its first container; others follow it."""
        before = {each["name"]: each for each in pod["status"].get("containerStatuses", ())}
        pod["spec"].setdefault("nodeName", "node-1")
        pod["status"] = {
            "phase": phase,
            "hostIP": "192.0.2.1",
            "startTime": pod["status"].get("startTime", now()),
            "qosClass": "BestEffort",
            "conditions": [
                {"type": kind, "status": str(holds), "lastTransitionTime": now()}
                for kind, holds in (
                    ("PodScheduled", True),
                    ("Initialized", True),
                    ("ContainersReady", ready),
                    ("Ready", ready),
                )
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "started": "running" in state,
                    "restartCount": before.get(container["name"], {}).get("restartCount", 0)
                    if restarts is None
                    else restarts,
                    "state": state,
                    "lastState": before.get(container["name"], {}).get("lastState", {}),
                }
                for container in pod["spec"]["containers"]
            ],
        }
        self._put(pod)

    def _restarted(self, job: Object, pod: Object, terminated: Object) -> None:
        """Start the container of a Pod with the restart policy `OnFailure` again, up to the limit."""
        restarts = pod["status"]["containerStatuses"][0]["restartCount"] + 1
        for each in pod["status"]["containerStatuses"]:
            each["lastState"] = {"terminated": terminated}
        back_off = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
        self._set_pod(pod, "Running", {"waiting": back_off}, restarts=restarts)
        if restarts >= max(1, job["spec"]["backoffLimit"]):
            # The controller removes the Pod, and its log with it.
            self._remove(pod)
            self._end(job, "FailureTarget", "Failed", "BackoffLimitExceeded", failed=1)

    def _pod_failed(self, job: Object) -> None:
        failed = job["status"].get("failed", 0) + 1
        if failed > job["spec"]["backoffLimit"]:
            self._end(job, "FailureTarget", "Failed", "BackoffLimitExceeded", failed=failed)
            return
        self._create_pod(self._set_status(job, failed=failed, active=0, ready=0))

    def _pods(self, name: str) -> list[Object]:
        pods = self._store.all("pods", self._namespace)
        return [pod for pod in pods if pod["metadata"]["labels"].get(JOB_NAME) == name]

    def _living(self, name: str) -> list[Object]:
        return [pod for pod in self._pods(name) if pod["status"]["phase"] in ("Pending", "Running")]

    def _put(self, pod: Object) -> None:
        self._store.put(("pods", self._namespace, pod["metadata"]["name"]), pod)

    def _remove(self, pod: Object) -> None:
        self.logs.pop(pod["metadata"]["name"], None)
        self._store.remove(("pods", self._namespace, pod["metadata"]["name"]))

    # --- the status of a Job ---------------------------------------------------------------------------

    def _set_status(self, job: Object, **fields: Any) -> Object:
        status = {
            "startTime": now(),
            "terminating": 0,
            "uncountedTerminatedPods": {},
            **job.get("status", {}),
        }
        status |= fields
        for name in ("active", "startTime"):
            if not status.get(name):
                status.pop(name, None)
        return self._store.put(("jobs", self._namespace, job["metadata"]["name"]), {**job, "status": status})

    def _end(self, job: Object, interim: str, final: str, reason: str, **counts: int) -> None:
        """Set the two conditions of a Job that has ended, in two writes."""
        conditions = [_condition(interim, reason)]
        job = self._set_status(job, active=0, ready=0, conditions=conditions, **counts)
        ended = {"completionTime": now()} if final == "Complete" else {}
        self._set_status(job, conditions=[*conditions, _condition(final, reason)], **ended)


def _condition(kind: str, reason: str) -> Object:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": _MESSAGES[reason],
        "lastProbeTime": now(),
        "lastTransitionTime": now(),
    }


def _ended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def _image(pod: Object) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
