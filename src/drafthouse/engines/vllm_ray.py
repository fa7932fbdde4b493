"""vLLM's workers as Ray's: what is added to its environment, and a host's part (`roles/engine/files/ray-node`)."""

from __future__ import annotations

from .base import Executor, HostPlace

#: vLLM has all else that Ray asks for: click, filelock, jsonschema, packaging, protobuf, PyYAML, requests.
RAY = Executor(since="0.32.0", packages=("msgpack==1.2.4", "ray==2.60.0"), tools=("ray-node",))


def ray_words(place: HostPlace) -> list[str]:
    """The words before a head's command, and all that a follower runs."""
    gpus, nodes = ["--gpus", str(place.devices)], ["--nodes", ",".join(place.addresses)]
    if place.cluster:
        return ["ray-node", "join", "--cluster", place.cluster, *nodes, *gpus]
    own = ["--address", place.address, "--port", str(place.ports[1]), *gpus]
    if place.rank:
        return ["ray-node", "worker", *own, "--head", place.head]
    return ["ray-node", "head", *own, *nodes]


def ray_environment(place: HostPlace) -> dict[str, str]:
    """How Ray guards itself: without a token whoever reaches it runs code."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": place.token_file}
