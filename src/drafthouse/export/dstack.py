"""A dstack service (https://dstack.ai/docs/reference/dstack.yml/service/).

dstack asks for its own token before every path and passes the client's header on, so an engine with a key of its own
would refuse everybody: it gets none, and nothing but the gateway reaches it.
"""

from __future__ import annotations

import math

from ..core.documents import Json
from ..core.shell import compact_json
from .base import Check, Read, Target
from .gpus import spelled
from .order import GUESS, SHARED_MEMORY_GIB, TOKEN, Order
from .text import shell_argv, shell_command, yaml_mapping, yaml_text


class Dstack(Target):
    """`dstack apply -f FILE`."""

    name = "dstack"
    tool = "dstack 0.22.5"
    keyed = False
    checks = (
        Check(
            "resources.gpu*",
            "the profile's GPU as dstack names it, with the memory that the arm needs",
            code="export-gpu",
        ),
        Check("image", "the engine's image", code="export-image"),
        Check("auth", "dstack asks for a token before every path", code="export-unguarded"),
        Check("commands", "the weights at their revision, before the engine", code="export-weights"),
        Check("env.*KEY*", "no engine key: dstack asks for its own", code="export-key"),
        Check("env.*", "the arm's variables", code="export-arguments"),
        Check("probes*", "ready means a completion", code="export-readiness"),
        Check("tags.drafthouse-*", "what the kept report says", code="export-evidence"),
        Check("port", "the engine's port", code="export-unguarded"),
    )

    def write(self, order: Order) -> str:
        """Return the service's YAML."""
        least, most = order.replicas
        data: dict[str, Json] = {
            "type": "service",
            "name": order.name,
            "image": order.image,
            "shell": "bash",
            "env": dict(order.environment),
            "commands": [order.downloads(), shell_command(self.argv(order))],
            "port": order.port,
            "model": order.profile["target"]["served_name"],
            "auth": True,
            "replicas": f"{least}..{most}" if most > least else least,
        }
        if most > least:
            data["scaling"] = {"metric": "rps", "target": order.rate or GUESS}
        data |= {
            "probes": [
                {
                    "type": "http",
                    "method": "post",
                    "url": "/v1/completions",
                    "headers": [{"name": "Content-Type", "value": "application/json"}],
                    "body": compact_json(order.completion),
                    "timeout": "60s",
                    "interval": "60s",
                }
            ],
            "resources": {
                "gpu": {
                    "name": spelled(order.profile["hardware"], "dstack"),
                    "count": order.profile["hardware"]["devices"],
                    "memory": f"{math.floor(order.needs / 2**30)}GB..",
                },
                "disk": f"{order.disk_gb}GB..",
                "shm_size": f"{SHARED_MEMORY_GIB}GB",
            },
            "volumes": [{"instance_path": "/drafthouse/models", "path": order.models, "optional": True}],
            "tags": {name.replace(".", "-"): said for name, said in order.labels.items()},
        }
        header = order.header(
            self.tool,
            "Start it: dstack apply -f FILE. Clients send dstack's token; the engine has no key of its own.",
            f"A gated repository: add {TOKEN}: ${{{{ secrets.{TOKEN} }}}} to env.",
            order.scaling,
        )
        return yaml_text(header, data)

    def read(self, text: str) -> Read:
        """Return a service's YAML, read back."""
        data = yaml_mapping(text)
        commands = data["commands"]
        if not isinstance(commands, list) or not commands:
            raise TypeError("list of commands")
        above, argv = shell_argv(str(commands[-1]))
        return Read({**data, "commands": [*commands[:-1], above]}, argv)
