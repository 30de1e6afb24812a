"""A real control plane of Kubernetes for tests, on 127.0.0.1: etcd, API server, controllers and scheduler.

It has no nodes: a test says what happens to a Pod. The programs are those of `PATH`.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: The tokens of an administrator and of the executor, which has only the Role of `deploy/`.
ADMIN, EXECUTOR = "admin-token", "executor-token"
_USERS = f"{ADMIN},admin,1,system:masters\n{EXECUTOR},executor,2\n"


def missing_programs() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@contextmanager
def control_plane(place: Path) -> Iterator[str]:
    """Run a control plane, and yield the URL of its API server. Its TLS key is in `place`."""
    etcd, peer, port = (_free_port() for _ in range(3))
    users, key, config = place / "users.csv", place / "accounts.key", place / "kubeconfig"
    users.write_text(_USERS)
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    url, store = f"https://127.0.0.1:{port}", f"http://127.0.0.1:{etcd}"
    config.write_text(yaml.safe_dump(_kubeconfig(url)))
    with ExitStack() as stack:
        for arguments in (
            [
                "etcd", f"--data-dir={place}/etcd", f"--listen-client-urls={store}", "--unsafe-no-fsync",
                f"--advertise-client-urls={store}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
            ],
            [
                "kube-apiserver", f"--etcd-servers={store}", "--bind-address=127.0.0.1",
                f"--secure-port={port}", f"--cert-dir={place}", f"--token-auth-file={users}",
                "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
                f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                "--service-account-issuer=https://127.0.0.1", "--disable-admission-plugins=ServiceAccount",
            ],
            [
                "kube-controller-manager", f"--kubeconfig={config}", "--leader-elect=false",
                "--secure-port=0",
                "--controllers=job-controller,resourcequota-controller,garbage-collector-controller",
                "--resource-quota-sync-period=2s",
            ],
            ["kube-scheduler", f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"],
        ):  # fmt: skip
            log = stack.enter_context((place / f"{arguments[0]}.log").open("wb"))
            process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(_stop, process)
            if arguments[0] == "kube-apiserver":
                _wait_until_ready(url)
        yield url


def _wait_until_ready(url: str) -> None:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/readyz", context=unchecked).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the API server is not ready")


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    }


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
