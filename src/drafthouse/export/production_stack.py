"""Values of vLLM's production-stack chart (https://github.com/vllm-project/production-stack, helm/values.yaml).

The chart makes the command itself. What it would add is said here, so that the arm stays what was measured: without
`enablePrefixCaching` it switches prefix caching off, which vLLM has on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..core.documents import Json
from ..core.errors import one_problem
from .base import Check, Read, Target
from .gpus import spelled
from .order import CPUS, MEMORY_GIB, SECRET, SECRET_KEY, TOKEN, TOKEN_KEY, TOKEN_SECRET, Order
from .text import yaml_mapping, yaml_text

_MODEL = "servingEngineSpec.modelSpec.*"
_ON, _OFF, _SPLIT = "--enable-prefix-caching", "--no-enable-prefix-caching", "--tensor-parallel-size"
_PROBE = frozenset(("initialDelaySeconds", "periodSeconds", "failureThreshold", "httpGet"))
#: The keys of chart 0.1.12 that make sense beside one of our arms, by the path of what has them. The chart's own schema
#: (values.schema.json) lets every other key pass, and Helm ignores it without a word.
_KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset(("servingEngineSpec", "routerSpec")),
    "servingEngineSpec": frozenset(
        (
            *("enableEngine", "labels", "vllmApiKey", "containerPort", "servicePort", "configs", "strategy"),
            *("tolerations", "runtimeClassName", "schedulerName", "imagePullPolicy", "securityContext"),
            *("containerSecurityContext", "serviceMonitor", "modelSpec"),
            *("startupProbe", "livenessProbe", "readinessProbe"),
        )
    ),
    "servingEngineSpec.startupProbe": _PROBE,
    "servingEngineSpec.livenessProbe": _PROBE,
    "servingEngineSpec.readinessProbe": _PROBE,
    "servingEngineSpec.modelSpec": frozenset(
        (
            *("name", "enabled", "annotations", "podAnnotations", "labels", "podLabels", "serviceAnnotations"),
            *("serviceAccountName", "priorityClassName", "runtimeClassName", "repository", "tag", "modelURL"),
            *("imagePullSecret", "replicaCount", "requestCPU", "requestMemory", "requestGPU", "requestGPUType"),
            *("limitCPU", "limitMemory", "resources", "pvcStorage", "pvcAccessMode", "storageClass", "pvcLabels"),
            *("pvcMatchLabels", "pvcAnnotations", "pvcExistingClaimName", "extraVolumes", "extraVolumeMounts"),
            *("hf_token", "env", "envFromSecret", "affinity", "nodeSelectorTerms", "nodeName", "tolerations"),
            *("tolerationsPolicy", "shmSize", "keda", "pdb", "initContainer", "vllmConfig"),
        )
    ),
    "servingEngineSpec.modelSpec.vllmConfig": frozenset(("enablePrefixCaching", "tensorParallelSize", "extraArgs")),
    "routerSpec": frozenset(
        (
            *("enableRouter", "repository", "tag", "replicaCount", "routingLogic", "sessionKey", "serviceType"),
            *("servicePort", "containerPort", "resources", "nodeSelectorTerms", "tolerations", "labels", "ingress"),
            *("imagePullPolicy", "imagePullSecrets", "serviceMonitor", "pdb", "autoscaling", "vllmApiKey"),
        )
    ),
}


class ProductionStack(Target):
    """`helm install NAME vllm/vllm-stack -f FILE`."""

    name = "production-stack"
    tool = "production-stack's chart 0.1.12"
    #: The chart mounts its claim there.
    models_dir = "/data"
    checks = (
        Check(f"{_MODEL}.requestGPU*", "as many GPUs as the profile has", code="export-gpu"),
        Check(
            f"{_MODEL}.nodeSelectorTerms*",
            "the profile's GPU, as NVIDIA's feature discovery labels it",
            code="export-gpu",
        ),
        Check(f"{_MODEL}.repository", "the engine's image", code="export-image"),
        Check(f"{_MODEL}.tag", "the engine's image", code="export-image"),
        Check("servingEngineSpec.vllmApiKey*", "the key comes from a Secret", code="export-key"),
        Check(f"{_MODEL}.env.*KEY*", "the key comes from a Secret", code="export-key"),
        Check(f"{_MODEL}.env.*", "the arm's variables", code="export-arguments"),
        Check(f"{_MODEL}.initContainer*", "the weights at their revision", code="export-weights"),
        Check(f"{_MODEL}.pvcExistingClaimName", "the claim that the init container fills", code="export-weights"),
        Check(
            "routerSpec.serviceType",
            "a Service inside the cluster; an ingress with TLS in front",
            code="export-unguarded",
        ),
        Check("routerSpec.ingress*", "an ingress of your own, with TLS and only /v1", code="export-unguarded"),
        Check(f"{_MODEL}.*nnotations.drafthouse.*", "what the kept report says", code="export-evidence"),
    )

    def write(self, order: Order) -> str:
        """Return the values. Raises DrafthouseError for another engine than vLLM: the chart starts no other."""
        argv = self.argv(order)
        if argv[:2] != ["vllm", "serve"]:
            found = f"{order.profile['engine']['name']}: the chart starts `vllm serve` and nothing else"
            needed, do = "a profile of vLLM", "export to kubernetes"
            raise one_problem("export-unsupported", found, needed, do, order.profile["profile"])
        folder, slash, last = order.image.rpartition("/")
        image, _, tag = last.partition(":")
        caches, config = _OFF not in argv, dict[str, Json]()
        config["enablePrefixCaching"] = caches
        extra = _without(argv[3:], "--host", "--port", _ON, _OFF)
        if _SPLIT in extra:  # only with this key the chart mounts shared memory
            config["tensorParallelSize"] = int(extra[extra.index(_SPLIT) + 1])
            extra = _without(extra, _SPLIT)
        config["extraArgs"] = extra
        token: dict[str, Json] = {"secretKeyRef": {"name": TOKEN_SECRET, "key": TOKEN_KEY, "optional": True}}
        product = spelled(order.profile["hardware"], "product")
        match: dict[str, Json] = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [product]}
        model: dict[str, Json] = {
            "name": order.name,
            "annotations": order.labels,
            "podAnnotations": order.labels,
            # The chart joins the two with a colon; a digest stands behind the tag.
            "repository": f"{folder}{slash}{image}",
            "tag": tag,
            "modelURL": argv[2],
            "replicaCount": order.replicas[0],
            "requestCPU": CPUS,
            "requestMemory": f"{MEMORY_GIB}Gi",
            "requestGPU": order.profile["hardware"]["devices"],
            "nodeSelectorTerms": [{"matchExpressions": [match]}],
            "pvcStorage": f"{order.volume_gib}Gi",
            "pvcAccessMode": ["ReadWriteMany" if order.replicas[0] > 1 else "ReadWriteOnce"],
            "initContainer": {
                "name": "weights",
                "image": order.image,
                "command": ["/bin/bash", "-c"],
                "args": [order.downloads()],
                "env": [{"name": TOKEN, "valueFrom": token}],
                "mountPvcStorage": True,
            },
            "env": [{"name": name, "value": value} for name, value in order.environment.items()],
            "vllmConfig": config,
            "pdb": {"enabled": True, "maxUnavailable": 1},
        }
        ready = order.profile["engine"]["ready_timeout_s"]
        data: dict[str, Json] = {
            "servingEngineSpec": {
                "enableEngine": True,
                "containerPort": order.port,
                "vllmApiKey": {"secretName": SECRET, "secretKey": SECRET_KEY},
                "startupProbe": {"periodSeconds": 10, "failureThreshold": ready // 10},
                "serviceMonitor": {"enabled": True},
                "modelSpec": [model],
            },
            "routerSpec": {"enableRouter": True, "routingLogic": "roundrobin", "serviceType": "ClusterIP"},
        }
        header = order.header(
            self.tool,
            f"First: kubectl create secret generic {SECRET} --from-file={SECRET_KEY}=FILE; for a gated repository"
            f" {TOKEN_SECRET} with {TOKEN_KEY} too.",
            ""
            if {_ON, _OFF} & set(order.argv())
            else "Prefix caching: the arm keeps vLLM's default, which is on; the chart always sets it.",
            "Ready means /health here: the chart's probes are HTTP GETs, and a completion is a POST.",
            f"Requests of {CPUS} CPUs and {MEMORY_GIB} GiB are an assumption, not a measurement.",
            order.open_paths,
        )
        return yaml_text(header, data)

    def argv(self, order: Order) -> list[str]:
        """Return the arm's command in the chart's order; prefix caching is said, as the chart says it either way."""
        words = order.argv()
        if words[:2] != ["vllm", "serve"]:
            return words
        port = str(order.port)
        caching = _OFF if _OFF in words else _ON
        rest = _without(words[3:], "--host", "--port", _ON, _OFF)
        split = ["--tensor-parallel-size", rest[rest.index(_SPLIT) + 1]] if _SPLIT in rest else []
        listen = ["--host", "0.0.0.0", "--port", port]  # noqa: S104 (in its container)
        return [*words[:3], *listen, caching, *split, *_without(rest, _SPLIT)]

    def read(self, text: str) -> Read:
        """Return the values, and the command that the chart's template makes of them."""
        data = yaml_mapping(text)
        spec = data["servingEngineSpec"]
        (model,) = spec["modelSpec"]
        config = model.pop("vllmConfig")
        port = str(spec.get("containerPort", 8000))
        argv = ["vllm", "serve", model.pop("modelURL"), "--host", "0.0.0.0", "--port", port]  # noqa: S104
        argv.append(_ON if config.get("enablePrefixCaching") else _OFF)
        if "tensorParallelSize" in config:
            argv += [_SPLIT, str(config["tensorParallelSize"])]
        model["vllmConfig"] = dict.fromkeys(config)
        return Read(data, [*argv, *(str(word) for word in config.get("extraArgs", ()))])

    def unknown(self, data: Json) -> Iterator[str]:
        """Yield the keys that are not the chart's."""
        return _unknown(data, "")


def _unknown(data: Json, path: str) -> Iterator[str]:
    if isinstance(data, (list, tuple)):
        for one in data:
            yield from _unknown(one, path)
    elif isinstance(data, Mapping) and path in _KEYS:
        for key, value in data.items():
            below = f"{path}.{key}".removeprefix(".")
            if key not in _KEYS[path]:
                yield below
            yield from _unknown(value, below)


def _without(words: Sequence[str], *flags: str) -> list[str]:
    """Return a command without some flags and their values."""
    kept, skips = list[str](), False
    for word in words:
        begins = word.startswith("--")
        skips = word in flags if begins else skips
        if not skips:
            kept.append(word)
    return kept
