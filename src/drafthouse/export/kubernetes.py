"""Kubernetes: Deployment, Service, PersistentVolumeClaim, PodDisruptionBudget, ServiceMonitor; Secrets by reference."""

from __future__ import annotations

import re

from ..core.documents import Json
from ..core.yaml_documents import yaml_of
from .base import Check, Read, Target
from .gpus import spelled
from .order import CPUS, MEMORY_GIB, SECRET, SECRET_KEY, SHARED_MEMORY_GIB, TOKEN, TOKEN_KEY, TOKEN_SECRET, Order
from .text import yaml_text

_POD = "Deployment.spec.template.spec"
_ENGINE = f"{_POD}.containers.engine"


class Kubernetes(Target):
    """`kubectl apply -f FILE`."""

    name = "kubernetes"
    tool = "Kubernetes 1.37"
    checks = (
        Check(f"{_POD}.nodeSelector*", "the profile's GPU, as NVIDIA's feature discovery labels it", code="export-gpu"),
        Check(f"{_ENGINE}.resources.limits.nvidia*", "as many GPUs as the profile has", code="export-gpu"),
        Check(f"{_ENGINE}.image", "the engine's image", code="export-image"),
        Check(f"{_ENGINE}.env.*KEY*", "the key comes from a Secret", code="export-key"),
        Check(f"{_ENGINE}.env.*", "the arm's variables", code="export-arguments"),
        Check(f"{_ENGINE}.volumeMounts.key*", "the key comes from a Secret", code="export-key"),
        Check(f"{_POD}.volumes.key*", "the key comes from a Secret", code="export-key"),
        Check(f"{_ENGINE}.readinessProbe*", "ready means a completion", code="export-readiness"),
        Check(f"{_ENGINE}.startupProbe*", "ready means a completion", code="export-readiness"),
        Check(f"{_POD}.initContainers.weights.*", "the weights at their revision", code="export-weights"),
        Check(f"{_POD}.initContainers", "the weights at their revision", code="export-weights"),
        Check(f"{_POD}.volumes.models*", "the claim of this file", code="export-weights"),
        Check("*.hostPort", "only the Service has the port", code="export-unguarded"),
        Check("*.hostNetwork", "only the Service has the port", code="export-unguarded"),
        Check(
            "Service.spec.type", "a Service inside the cluster; an ingress with TLS in front", code="export-unguarded"
        ),
        Check(
            "Service.spec.external*",
            "a Service inside the cluster; an ingress with TLS in front",
            code="export-unguarded",
        ),
        Check("Deployment.*annotations.drafthouse.*", "what the kept report says", code="export-evidence"),
    )

    def write(self, order: Order) -> str:
        """Return the objects as one file."""
        app: dict[str, Json] = {"app.kubernetes.io/name": order.name, "app.kubernetes.io/managed-by": "drafthouse"}
        meta: dict[str, Json] = {"name": order.name, "labels": app}
        select: dict[str, Json] = {"app.kubernetes.io/name": order.name}
        several = order.replicas[0] > 1
        claim: dict[str, Json] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"{order.name}-models", "labels": app},
            "spec": {
                # Pods on several nodes read one volume.
                "accessModes": ["ReadWriteMany" if several else "ReadWriteOnce"],
                "resources": {"requests": {"storage": f"{order.volume_gib}Gi"}},
            },
        }
        deployment: dict[str, Json] = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**meta, "annotations": order.labels},
            "spec": {
                "replicas": order.replicas[0],
                "selector": {"matchLabels": select},
                # There is seldom a GPU to spare for a surge.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "progressDeadlineSeconds": 2 * order.profile["engine"]["ready_timeout_s"],
                "template": {
                    "metadata": {"labels": app, "annotations": order.labels},
                    "spec": _pod(self.argv(order), order),
                },
            },
        }
        service: dict[str, Json] = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {
                "type": "ClusterIP",
                "selector": select,
                "ports": [{"name": "http", "port": order.port, "targetPort": "http"}],
            },
        }
        budget: dict[str, Json] = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": select}},
        }
        endpoint: dict[str, Json] = {"port": "http", "path": "/metrics"}
        if order.profile["engine"]["metrics"]["key"]:
            endpoint["authorization"] = {"type": "Bearer", "credentials": {"name": SECRET, "key": SECRET_KEY}}
        monitor: dict[str, Json] = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": select}, "endpoints": [endpoint]},
        }
        header = order.header(
            self.tool,
            f"First: kubectl create secret generic {SECRET} --from-file={SECRET_KEY}=FILE; for a gated repository"
            f" {TOKEN_SECRET} with {TOKEN_KEY} too.",
            "ServiceMonitor needs the Prometheus Operator: without it, leave out the last object.",
            f"Requests of {CPUS} CPUs and {MEMORY_GIB} GiB are an assumption, not a measurement.",
            order.open_paths,
        )
        return yaml_text(header, claim, deployment, service, budget, monitor)

    def read(self, text: str) -> Read:
        """Return the objects by their kind, read back."""
        found = [yaml_of(part) for part in re.split(r"^---$", text, flags=re.MULTILINE)]
        data = {str(one["kind"]): one for one in found if one}
        (engine,) = (
            one for one in data["Deployment"]["spec"]["template"]["spec"]["containers"] if one["name"] == "engine"
        )
        return Read(data, [_expanded(str(word)) for word in [*engine.pop("command"), *engine.pop("args")]])


def _pod(argv: list[str], order: Order) -> dict[str, Json]:
    ready, key_file = order.profile["engine"]["ready_timeout_s"], order.profile["key_file"]
    secret: dict[str, Json] = {"secretKeyRef": {"name": SECRET, "key": SECRET_KEY}}
    token: dict[str, Json] = {"secretKeyRef": {"name": TOKEN_SECRET, "key": TOKEN_KEY, "optional": True}}
    mounts: list[Json] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 (shared memory, not a file of ours)
    volumes: list[Json] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": f"{order.name}-models"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_GIB}Gi"}},
    ]
    if order.reads_key_file:
        mounts.append({"name": "key", "mountPath": key_file, "subPath": SECRET_KEY, "readOnly": True})
        volumes.append({"name": "key", "secret": {"secretName": SECRET, "defaultMode": 0o400}})
    probe: dict[str, Json] = {"exec": {"command": order.probe(f"${order.key_variable}")}, "timeoutSeconds": 60}
    engine: dict[str, Json] = {
        "name": "engine",
        "image": order.image,
        "command": [_unexpanded(argv[0])],
        "args": [_unexpanded(word) for word in argv[1:]],
        "env": [
            {"name": order.key_variable, "valueFrom": secret},
            *({"name": name, "value": value} for name, value in order.environment.items()),
        ],
        "ports": [{"name": "http", "containerPort": order.port}],
        "startupProbe": {**probe, "periodSeconds": 10, "failureThreshold": ready // 10},
        "readinessProbe": {**probe, "periodSeconds": 60, "failureThreshold": 3},
        "livenessProbe": {
            "httpGet": {"path": order.profile["engine"]["health"], "port": "http"},
            "failureThreshold": 10,
        },
        "resources": {
            "requests": {"cpu": CPUS, "memory": f"{MEMORY_GIB}Gi"},
            "limits": {"nvidia.com/gpu": order.profile["hardware"]["devices"]},
        },
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "models", "mountPath": order.models, "readOnly": True}, *mounts],
    }
    return {
        "automountServiceAccountToken": False,
        # A Service's own variables may be those of an engine: vLLM reads VLLM_PORT.
        "enableServiceLinks": False,
        "nodeSelector": {"nvidia.com/gpu.product": spelled(order.profile["hardware"], "product")},
        "initContainers": [
            {
                "name": "weights",
                "image": order.image,
                "command": ["/bin/bash", "-c"],
                "args": [_unexpanded(order.downloads())],
                "env": [{"name": TOKEN, "valueFrom": token}],
                "volumeMounts": [{"name": "models", "mountPath": order.models}],
            }
        ],
        "containers": [engine],
        "volumes": volumes,
    }


def _unexpanded(word: str) -> str:
    """Return a word in which Kubernetes, for which `$(` begins a variable, finds none."""
    return word.replace("$", "$$") if "$(" in word or "$$" in word else word


def _expanded(word: str) -> str:
    """Return a word as Kubernetes hands it on."""
    return word.replace("$$", "$")
