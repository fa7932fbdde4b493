"""A SkyPilot service (https://docs.skypilot.co/en/latest/serving/service-yaml-spec.html)."""

from __future__ import annotations

from ..core.documents import Json
from ..core.shell import shell_words
from .base import Check, Read, Target
from .gpus import spelled
from .order import TOKEN, VARIABLE, Order
from .text import shell_argv, shell_command, yaml_mapping, yaml_text

_GUESS = 1.0  # requests/s, where no load was measured


class SkyPilot(Target):
    """`sky serve up FILE --secret DRAFTHOUSE_API_KEY`."""

    name = "skypilot"
    tool = "SkyPilot 0.14.1"
    checks = (
        Check("resources.accelerators*", "the profile's GPU, as SkyPilot spells it", code="export-gpu"),
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
        rate, least, most = self.rate(order), *order.replicas
        policy: dict[str, Json] = {"min_replicas": least}
        if most > least:
            policy |= {"max_replicas": most, "target_qps_per_replica": rate or _GUESS}
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
            scaling_note(rate, most > least),
            order.open_paths
            and f"{order.open_paths} SkyServe hands every path on: keep the service in a private network, or put a"
            " proxy in front that has no other way in.",
        )
        return yaml_text(header, data)

    def rate(self, order: Order) -> float | None:
        """Return the requests/s that a replica was measured to manage; None where no load was measured."""
        return order.evidence.rates.get(order.arm) if order.evidence else None

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


def scaling_note(rate: float | None, scales: bool) -> str:
    """Return what the header says of the rate at which replicas are added."""
    if not scales:
        return "Replicas: fixed, without autoscaling."
    if rate is None:
        return f"Scaling at {_GUESS:g} request/s a replica is a guess: no load was measured."
    return (
        f"Scaling at {rate:g} requests/s a replica, which one box managed in the report at the highest load that pays."
    )
