"""Ray as the program that starts vLLM's workers on several hosts: its packages, commands and variables."""

from __future__ import annotations

from .base import Executor, HostPlace

#: Ray's other dependencies are vLLM's too: click, filelock, jsonschema, packaging, protobuf, PyYAML, requests.
RAY = Executor(since="0.32.0", packages=("msgpack==1.2.4", "ray==2.60.0"), tools=("ray-node",))


def ray_words(place: HostPlace) -> list[str]:
    """The command of `roles/engine/files/ray-node` that makes the host a cluster's head or worker, or joins one."""
    gpus = ["--gpus", str(place.devices)]
    nodes = ["--nodes", ",".join(place.addresses)]
    if place.cluster:
        return ["ray-node", "join", "--cluster", place.cluster, *nodes, *gpus]
    address = ["--address", place.address, "--port", str(place.ports[1]), *gpus]
    if place.rank:
        return ["ray-node", "worker", *address, "--head", place.head]
    return ["ray-node", "head", *address, *nodes]


def ray_environment(place: HostPlace) -> dict[str, str]:
    """The variables that make Ray require a token; without one, anyone who reaches its port can run code."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": place.token_file}
