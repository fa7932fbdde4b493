"""A compose.yaml for one host: the arm, and a service before it that fetches the weights."""

from __future__ import annotations

from ..core.documents import Json
from ..core.shell import shell_words
from ..profiles.container import Container, compose_service
from .base import Check, Read, Target
from .order import SECRET, SHARED_MEMORY_GIB, TOKEN, VARIABLE, Order
from .text import yaml_mapping, yaml_text

_BASH = "/bin/bash"


class Compose(Target):
    """`docker compose -f FILE up`."""

    name = "compose"
    tool = "Docker Compose v2"
    checks = (
        Check("services.engine.deploy*", "every GPU of the host", code="export-gpu"),
        Check("services.engine.image", "the engine's image", code="export-image"),
        Check("services.engine.environment.*KEY*", "the key is a secret, not a variable", code="export-key"),
        Check("services.engine.environment*", "the arm's variables", code="export-arguments"),
        Check("services.engine.secrets*", "the key is a secret", code="export-key"),
        Check("secrets*", "the key is a file next to this one", code="export-key"),
        Check("services.engine.entrypoint", "the engine is given its key", code="export-key"),
        Check("services.engine.healthcheck*", "healthy means a completion", code="export-readiness"),
        Check("services.engine.depends_on*", "the weights are fetched first", code="export-weights"),
        Check("services.weights*", "the weights at their revision", code="export-weights"),
        Check("services.engine.ports", "loopback only; a proxy with TLS in front", code="export-unguarded"),
        Check("services.engine.network_mode", "loopback only; a proxy with TLS in front", code="export-unguarded"),
        Check("services.engine.labels.drafthouse.*", "what the kept report says", code="export-evidence"),
    )

    def write(self, order: Order) -> str:
        """Return the file."""
        argv, key_file = self.argv(order), order.profile["key_file"]
        by_variable = not order.reads_key_file
        given = f'{order.key_variable}="$(< {shell_words(key_file)})" && export {order.key_variable} && exec "$@"'
        built = order.built["container"]
        engine: Container = {
            "name": order.name,
            "image": order.image,
            "labels": order.labels,
            "entrypoint": [_BASH, "-c", given, "serve"] if by_variable else argv[:1],
            "command": argv if by_variable else argv[1:],
            "environment": order.environment,
            "mounts": [f"models:{order.models}:ro"],
            "ports": [f"127.0.0.1:{order.port}:{order.port}"],
            "ulimits": built["ulimits"] if built else {},
            "gpus": ["all"],
            "health": {
                "command": order.probe(f"$(< {shell_words(key_file)})"),
                "interval_s": 60,
                "timeout_s": 60,
                "retries": 3,
                "start_period_s": order.profile["engine"]["ready_timeout_s"],
            },
        }
        weights: Container = {
            "name": f"{order.name}-weights",
            "image": order.image,
            "labels": {},
            "entrypoint": [_BASH, "-c", order.downloads()],
            "mounts": [f"models:{order.models}:rw"],
        }
        fetched = {key: value for key, value in compose_service(weights).items() if key not in ("restart", "labels")}
        data: dict[str, Json] = {
            "services": {
                "weights": {**fetched, "environment": {TOKEN: f"${{{TOKEN}:-}}"}},
                "engine": {
                    **compose_service(engine),
                    "shm_size": f"{SHARED_MEMORY_GIB}gb",
                    "depends_on": {"weights": {"condition": "service_completed_successfully"}},
                    "secrets": [{"source": SECRET, "target": key_file}],
                },
            },
            "volumes": {"models": {}},
            "secrets": {SECRET: {"file": f"${{{VARIABLE}_FILE:-./api_key}}"}},
        }
        header = order.header(
            self.tool,
            f"First: put the key in ./api_key (mode 0600), or {VARIABLE}_FILE=PATH; a gated repository: {TOKEN}=...",
            order.open_paths,
        )
        return yaml_text(header, data)

    def read(self, text: str) -> Read:
        """Return the file, read back; Compose makes one `$` of two."""
        data = yaml_mapping(text)
        engine = data["services"]["engine"]
        command = [str(word).replace("$$", "$") for word in engine.pop("command")]
        if str(engine["entrypoint"][-2:][0]).endswith('exec "$$@"'):
            return Read(data, command)
        return Read(data, [*(str(word).replace("$$", "$") for word in engine.pop("entrypoint")), *command])
