"""The Kubernetes manifests in `deploy/`: valid, consistent, and in line with the program and its image."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.conftest import NewApp, on_one_store
from tests.support.deploy_files import unknown_settings
from tests.support.doc_pages import code, rows
from tests.support.paths import ROOT
from tests.support.tools import run, tool, tool_module
from wakeful.errors import InvalidArgument
from wakeful.server.http_app import create_app
from wakeful.settings import read_settings

KUBERNETES = ROOT / "deploy/kubernetes"
COMPONENTS = ["components/autoscaling", "components/monitoring"]


def manifest(path: str) -> Any:
    return yaml.safe_load((KUBERNETES / path).read_text())


def container() -> Any:
    (only,) = manifest("deployment.yaml")["spec"]["template"]["spec"]["containers"]
    return only


def rendered(place: Path, *components: str) -> list[dict[str, Any]]:
    """Return all resources as `kubectl` applies them."""
    folder = place / "kubernetes"
    shutil.copytree(KUBERNETES, folder)
    kustomization = folder / "kustomization.yaml"
    content = yaml.safe_load(kustomization.read_text())
    kustomization.write_text(yaml.safe_dump({**content, "components": list(components)}))
    return list(yaml.safe_load_all(run(tool("kubectl"), "kustomize", str(folder))))


def test_the_resources_can_be_rendered(tmp_path: Path):
    resources = {each["kind"]: each for each in rendered(tmp_path)}
    assert resources.keys() == {"Deployment", "Service", "PodDisruptionBudget"}
    spec = resources["Deployment"]["spec"]
    assert spec["replicas"] == 3
    labels = spec["template"]["metadata"]["labels"]
    for selector in (
        spec["selector"]["matchLabels"],
        resources["Service"]["spec"]["selector"],
        resources["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_the_components_can_be_rendered(tmp_path: Path):
    resources = {each["kind"]: each for each in rendered(tmp_path, *COMPONENTS)}
    assert resources.keys() >= {"HorizontalPodAutoscaler", "ServiceMonitor"}
    assert "replicas" not in resources["Deployment"]["spec"], "the autoscaler owns the number"
    target = resources["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", resources["Deployment"]["metadata"]["name"])
    monitor = resources["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= resources["Service"]["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == resources["Service"]["spec"]["ports"][0]["name"]


def test_the_manifests_match_the_schemas_of_kubernetes():
    validator = tool_module("kubernetes_validate")
    version = validator.latest_version()
    for path in KUBERNETES.rglob("*.yaml"):
        for resource in yaml.safe_load_all(path.read_text()):
            if "kustomize" in resource.get("apiVersion", "kustomize") or resource["kind"] == "ServiceMonitor":
                continue  # not resources of Kubernetes itself
            validator.validate(resource, version, strict=True)


@on_one_store
async def test_the_probes_and_the_ports_are_those_of_the_server(new_app: NewApp):
    paths = create_app(new_app().services).openapi()["paths"]
    only = container()
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = only[name]["httpGet"]
        assert probe["path"] in paths
        assert probe["port"] == only["ports"][0]["name"]
    assert only["ports"][0]["containerPort"] == read_settings({}).port
    assert only["livenessProbe"]["httpGet"]["path"] == "/healthz", "a database outage restarts nothing"
    assert only["readinessProbe"]["httpGet"]["path"] == "/readyz"
    started_within = only["startupProbe"]["periodSeconds"] * only["startupProbe"]["failureThreshold"]
    (wait,) = (int(each["value"]) for each in only["env"] if each["name"] == "WAKEFUL_WAIT_FOR_DB")
    assert wait < started_within


def test_the_pod_is_restricted_and_has_time_to_stop():
    spec = manifest("deployment.yaml")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= 45
    assert spec["enableServiceLinks"] is False, "WAKEFUL_PORT would be an address"
    own, pod = container()["securityContext"], spec["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert (pod["runAsNonRoot"], str(pod["runAsUser"]), str(pod["fsGroup"])) == (True, user[1], user[2])
    assert {mount["mountPath"] for mount in container()["volumeMounts"]} == {"/var/lib/wakeful", "/tmp"}


def test_the_manifests_name_settings_that_exist():
    texts = "".join(path.read_text() for path in KUBERNETES.rglob("*.yaml"))
    assert unknown_settings(texts) == set()
    assert (
        manifest("secret.example.yaml")["metadata"]["name"]
        == (container()["envFrom"][0]["secretRef"]["name"])
    )


def test_the_autoscaler_uses_a_metric_that_exists():
    scaler = manifest("components/autoscaling/horizontal-pod-autoscaler.yaml")
    (metric,) = (each["external"]["metric"]["name"] for each in scaler["spec"]["metrics"])
    (rule,) = manifest("components/autoscaling/prometheus-adapter.yaml")["rules"]["external"]
    assert rule["name"]["as"] == metric
    assert metric in rule["seriesQuery"]
    assert f"{metric}{{<<.LabelMatchers>>}}" in rule["metricsQuery"]
    assert metric in {code(cells[0]) for cells in rows("reference/metrics.md")}


def test_an_address_that_kubernetes_sets_as_port_is_explained():
    with pytest.raises(InvalidArgument, match="set enableServiceLinks: false"):
        read_settings({"WAKEFUL_PORT": "tcp://10.0.0.1:9253"})
