"""A SkyPilot service (https://docs.skypilot.co/en/latest/serving/service-yaml-spec.html)."""

from __future__ import annotations

from ..core.documents import Json
from ..core.shell import shell_words
from .base import Check, Read, Target
from .gpus import spelled
from .order import GUESS, TOKEN, VARIABLE, Order
from .text import shell_argv, shell_command, yaml_mapping, yaml_text


class SkyPilot(Target):
    """`sky serve up FILE --secret DRAFTHOUSE_API_KEY`."""

    name = "skypilot"
    tool = "SkyPilot 0.14.1"
    checks = (
        Check("resources.accelerators*", "the profile's GPU as SkyPilot names it", code="export-gpu"),
        Check("resources.image_id", "the engine's image", code="export-image"),
        Check("secrets*", "the key is a secret without a value here", code="export-key"),
        Check(f"envs.{VARIABLE}", "the key is a secret, not a variable", code="export-key"),
        Check("envs.DRAFTHOUSE_*", "what the kept report says", code="export-evidence"),
        Check("run.*[Kk][Ee][Yy]*", "the engine is given its key before it listens", code="export-unguarded"),
        Check("run.*", "the arm's variables", code="export-arguments"),
        Check("service.readiness_probe*", "ready means a completion", code="export-readiness"),
        Check("setup", "the weights at their revision", code="export-weights"),
    )

    def write(self, order: Order) -> str:
        """Return the service's YAML."""
        least, most = order.replicas
        policy: dict[str, Json] = {"min_replicas": least}
        if most > least:
            policy |= {"max_replicas": most, "target_qps_per_replica": order.rate or GUESS}
        data: dict[str, Json] = {
            "name": order.name,
            "service": {
                "readiness_probe": {
                    "path": "/v1/completions",
                    "post_data": order.completion,
                    "headers": {"Authorization": f"Bearer ${VARIABLE}"},
                    "initial_delay_seconds": order.profile["engine"]["ready_timeout_s"],
                    "timeout_seconds": 60,
                },
                "replica_policy": policy,
                "load_balancing_policy": "least_load",
            },
            "resources": {
                "image_id": f"docker:{order.image}",
                "accelerators": {
                    spelled(order.profile["hardware"], "skypilot"): order.profile["hardware"]["devices"],
                },
                "ports": order.port,
                "disk_size": order.disk_gb,
            },
            "envs": {name.replace(".", "_").upper(): said for name, said in order.labels.items()},
            "secrets": {VARIABLE: None},
            "setup": order.downloads(),
            "run": _prepared(order) + shell_command(self.argv(order)),
        }
        header = order.header(
            self.tool,
            f"Start it: {VARIABLE}=... sky serve up FILE --secret {VARIABLE}. A gated repository: --secret {TOKEN}.",
            order.scaling,
            order.open_paths
            and f"{order.open_paths} SkyServe forwards every path: keep the service in a private network, or make a"
            " proxy its only entry.",
        )
        return yaml_text(header, data)

    def read(self, text: str) -> Read:
        """Return a service's YAML, read back."""
        data = yaml_mapping(text)
        above, argv = shell_argv(str(data["run"]))
        return Read({**data, "run": dict.fromkeys(filter(None, above.splitlines()), True)}, argv)


def _prepared(order: Order) -> str:
    """Return the lines above the command: the engine's key out of our variable, and the arm's variables.

    Not under `envs`, where a PATH of the engine's image would be that of SkyPilot's own programs too.
    """
    lines = ["set -euo pipefail"]
    if order.reads_key_file:
        path = shell_words(order.profile["key_file"])
        lines += ["umask 077", f"install -D /dev/null {path}", f"printf '%s\\n' \"${{{VARIABLE}:?}}\" > {path}"]
    else:
        lines.append(f'export {order.key_variable}="${{{VARIABLE}:?}}"')
    lines += [f"export {name}={shell_words(value)}" for name, value in order.environment.items()]
    return "\n".join(lines) + "\n"
