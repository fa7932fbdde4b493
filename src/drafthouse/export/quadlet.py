"""A Quadlet for Podman 5 under systemd, on one host.

https://docs.podman.io/en/latest/markdown/podman-systemd.unit.5.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ..core.documents import Json
from .base import Check, Read, Target
from .order import SECRET, SHARED_MEMORY_GIB, TOKEN, TOKEN_SECRET, Order

_VOLUME = "drafthouse-models"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "$": "$$", "%": "%%"}
_PLAIN = {written: plain for plain, written in _ESCAPES.items()}


class Quadlet(Target):
    """`systemctl start NAME`, once the file lies in /etc/containers/systemd."""

    name = "quadlet"
    tool = "Podman 5's Quadlet"
    suffix = "container"
    checks = (
        Check("Container.AddDevice", "every GPU of the host", code="export-gpu"),
        Check("Container.Image", "the engine's image", code="export-image"),
        Check("Container.Secret", "the key is a Podman secret", code="export-key"),
        Check("Container.Environment", "the arm's variables, without the key", code="export-arguments"),
        Check("Container.Health*", "healthy means a completion", code="export-readiness"),
        Check("Container.Notify", "the unit is up once it is healthy", code="export-readiness"),
        Check("Container.PublishPort", "loopback only; a proxy with TLS in front", code="export-unguarded"),
        Check("Container.Network", "loopback only; a proxy with TLS in front", code="export-unguarded"),
        Check("Service.ExecStartPre", "the weights at their revision", code="export-weights"),
        Check("Container.Volume", "the volume that ExecStartPre fills", code="export-weights"),
        Check("Container.Label", "what the kept report says", code="export-evidence"),
    )

    def write(self, order: Order) -> str:
        """Return the unit."""
        argv, key_file, ready = self.argv(order), order.profile["key_file"], order.profile["engine"]["ready_timeout_s"]
        kind = (
            f"type=mount,target={key_file},mode=0400"
            if order.reads_key_file
            else f"type=env,target={order.key_variable}"
        )
        key = f"$(< {key_file})" if order.reads_key_file else f"${order.key_variable}"
        fetch = ["/usr/bin/podman", "run", "--rm", "--volume", f"{_VOLUME}:{order.models}"]
        fetch += ["--entrypoint", "/bin/bash", order.image, "-c", order.downloads()]
        built = order.built["container"]
        lines = [
            "[Unit]",
            f"Description=Drafthouse: {order.profile['profile']}, {order.arm} arm",
            "Wants=network-online.target",
            "After=network-online.target",
            "",
            "[Container]",
            f"ContainerName={order.name}",
            f"Image={order.image}",
            f"Entrypoint={argv[0]}",
            f"Exec={words(argv[1:])}",
            *(f"Environment={words([f'{name}={value}'])}" for name, value in order.environment.items()),
            f"Secret={SECRET},{kind}",
            "AddDevice=nvidia.com/gpu=all",
            f"ShmSize={SHARED_MEMORY_GIB}g",
            *(f"Ulimit={name}={value}" for name, value in (built["ulimits"] if built else {}).items()),
            f"Volume={_VOLUME}:{order.models}:ro",
            f"PublishPort=127.0.0.1:{order.port}:{order.port}",
            f"HealthCmd={_escaped(json.dumps(['CMD', *order.probe(key)]))}",
            "HealthInterval=60s",
            "HealthTimeout=60s",
            "HealthRetries=3",
            f"HealthStartPeriod={ready}s",
            "Notify=healthy",
            *(f"Label={words([f'{name}={said}'])}" for name, said in order.labels.items()),
            "",
            "[Service]",
            f"ExecStartPre={words(fetch)}",
            "Restart=on-failure",
            # The first start fetches the weights.
            "TimeoutStartSec=infinity",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
        header = order.header(
            self.tool,
            f"First: podman secret create {SECRET} FILE. A gated repository: podman secret create {TOKEN_SECRET}"
            f" FILE, and --secret {TOKEN_SECRET},type=env,target={TOKEN} in ExecStartPre.",
            order.open_paths,
        )
        return "\n".join([*header, *lines]) + "\n"

    def read(self, text: str) -> Read:
        """Return the unit by section and key, read back."""
        data: dict[str, dict[str, list[Json]]] = {}
        section = ""
        for line in text.splitlines():
            if found := re.fullmatch(r"\[(\w+)\]", line.strip()):
                section = found[1]
            elif line.strip() and not line.lstrip().startswith(("#", ";")):
                key, _, value = line.partition("=")
                data.setdefault(section, {}).setdefault(key.strip(), []).append(value.strip())
        container = data["Container"]
        (entrypoint,), (command,) = container.pop("Entrypoint"), container.pop("Exec")
        return Read(data, [str(entrypoint), *words_of(str(command))])


def words(argv: Iterable[str]) -> str:
    """Return words as systemd reads them: each in double quotes, and no variable or specifier in them."""
    return " ".join(f'"{"".join(_ESCAPES.get(one, one) for one in word)}"' for word in argv)


def words_of(line: str) -> list[str]:
    """Return the words of a line as `words` writes it."""
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    return [re.sub(r"\\.|\$\$|%%", lambda found: _PLAIN[found[0]], inside or bare) for inside, bare in quoted]


def _escaped(text: str) -> str:
    """Return a value that Quadlet takes as it is and hands to systemd."""
    return text.replace("$", "$$").replace("%", "%%")
