"""The manifests of the Kubernetes executor: consistent, restricted, with a template that is a valid Job."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import yaml

from tests.support.kubernetes_api import KubernetesApi
from tests.support.paths import ROOT
from wakeful.remote.kubernetes.templates import check_template

RESOURCES: dict[str, Any] = {
    each["kind"]: each for each in yaml.safe_load_all((ROOT / "deploy/kubernetes/executor.yaml").read_text())
}
NAME = "wakeful-executor"


def pod() -> Any:
    return RESOURCES["Deployment"]["spec"]["template"]["spec"]


def template() -> dict[str, Any]:
    return check_template("default", yaml.safe_load(RESOURCES["ConfigMap"]["data"]["job.yaml"]))


def test_the_resources_belong_together():
    assert RESOURCES.keys() == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Deployment"}
    assert {each["metadata"]["name"] for each in RESOURCES.values()} == {NAME}
    binding = RESOURCES["RoleBinding"]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", NAME)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME}]
    assert (pod()["serviceAccountName"], pod()["automountServiceAccountToken"]) == (NAME, True)
    spec = RESOURCES["Deployment"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_role_permits_only_what_the_executor_does():
    permitted = {
        (group, resource): set(rule["verbs"])
        for rule in RESOURCES["Role"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert permitted == {
        ("batch", "jobs"): {"create", "get", "list", "watch", "delete"},
        ("", "pods"): {"get", "list"},
        ("", "pods/log"): {"get"},
    }


def test_the_pod_is_restricted_and_reads_its_template():
    (container,) = pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (pod()["securityContext"]["runAsNonRoot"], pod()["enableServiceLinks"]) == (True, False)
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert str(pod()["securityContext"]["runAsUser"]) == user[1]
    assert container["resources"].keys() == {"requests", "limits"}
    args = container["args"]
    assert args[:2] == ["executor", "kubernetes"]
    section = (ROOT / "docs/reference/cli.md").read_text().partition("### wakeful executor kubernetes\n")[2]
    known = set(re.findall(r"`(--[\w-]+)`", section.partition("\n##")[0]))
    assert {each for each in args if each.startswith("--")} <= known
    (mount,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "templates")
    file = args[args.index("--template") + 1]
    assert file.removeprefix(mount + "/") in RESOURCES["ConfigMap"]["data"]
    (port,) = container["ports"]
    assert args[args.index("--health") + 1] == str(port["containerPort"])
    probes = {
        each: container[each]["httpGet"] for each in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert {probe["port"] for probe in probes.values()} == {port["name"]}
    assert probes["livenessProbe"]["path"] == "/healthz", "an outage of the server restarts nothing"
    assert probes["readinessProbe"]["path"] == "/readyz"


async def test_the_role_and_the_template_are_enough_for_a_job():
    job = template()
    job["metadata"] = {"name": "wakeful-a-1", "labels": {"wakeful/run-id": "a"}}
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    async with KubernetesApi(permitted=RESOURCES["Role"]["rules"]) as api:
        headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
        jobs = f"{api.url}/apis/batch/v1/namespaces/default/jobs"
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(f"{jobs}?fieldValidation=Strict", data=json.dumps(job)) as response:
                assert response.status == 201, await response.text()
            api.finish_pod("wakeful-a-1", 0, log="payload: {}")
            name = api.pod("wakeful-a-1")["metadata"]["name"]
            async with session.get(f"{api.url}/api/v1/namespaces/default/pods/{name}/log") as response:
                assert await response.text() == "payload: {}"
            async with session.delete(f"{jobs}/wakeful-a-1?propagationPolicy=Background") as response:
                assert response.status == 200, await response.text()
    assert api.jobs() == api.pods() == []
