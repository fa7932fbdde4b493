"""Build the request that rents a box for a profile: image, disk, ports, and the script that runs at its start.

The request holds no secret, because the account's console, the host and every process of the box can read it. Keys and
tokens are copied later over SSH, into files with mode 0600.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TypedDict

from ...cloud.deadline import onstart as deadline_onstart
from ...core.errors import one_problem

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

# SSH through a direct port if the machine has one, and through vast.ai's proxy. The API spells "ssh_direc" so.
RUNTYPE = "ssh_direc ssh_proxy"
# Characters of the start script; the API refuses longer ones.
LONGEST_ONSTART = 4048
# Hosts at which a server is not reachable from outside the box.
LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Copies variables of the container to /etc/environment, because SSH sessions do not get the container's environment.
# All users of the box can read that file, so only listed names are copied, and none that sounds like a secret. A value
# with a line break could imitate such a name and is left out. Repeated at every start: external ports may change.
_ENVIRONMENT = r"""
sed -i '/^# drafthouse begin$/,/^# drafthouse end$/d' /etc/environment 2>/dev/null
{ echo '# drafthouse begin'
  env -0 | tr '\n\0' '\1\n' | grep -E '^(PATH|LD_LIBRARY_PATH|PUBLIC_IPADDR|CONTAINER_ID|GPU_COUNT|VAST_(TCP|UDP)_PORT_[0-9]+|CUDA_[A-Z_]+|NVIDIA_[A-Z_]+|DRAFTHOUSE_[A-Z_]+)=' | grep -vE '^[^=]*(KEY|TOKEN|SECRET|PASS)' | grep -v $'["\1]'
  echo '# drafthouse end'; } >>/etc/environment
mkdir -p /workspace
"""  # noqa: E501 (one pattern)


class RentRequest(TypedDict):
    """Body of the request that rents an offer."""

    client_id: str  # always "me"
    image: str  # of the container
    disk: int  # GB
    label: str
    runtype: str  # how SSH reaches the box
    env: dict[str, str]  # the container's variables, and its ports to open, as "-p PORT:PORT": "1"
    onstart: str  # the start script
    cancel_unavail: bool  # fail if the machine cannot start the instance now, instead of queueing it


def body_of(resolved: ResolvedProfile, label: str, deadline: int, hours: float, url: str) -> RentRequest:
    """Body of an on-demand request, which names no price. ``url`` is the API that the deadline watch calls.

    ``deadline``: unix seconds. ``hours``: of the rental. Raises DrafthouseError if the catalogue has no image for the
    engine.
    """
    rental = resolved["rental"]
    if not rental["image"]:
        raise one_problem(
            "rental-without-image",
            f"no image for {resolved['engine']['name']} {resolved['engine']['version']}",
            "`image` or `rental_image` in the engine's entry",
            "add one, with Python in it",
            f"profiles/catalog/engines/{resolved['engine']['id']}.yml",
        )
    return {
        "client_id": "me",
        "image": rental["image"],
        "disk": rental["disk_gb"],
        "label": label,
        "runtype": RUNTYPE,
        "env": {f"-p {port}:{port}": "1" for port in ports_of(resolved)} | {"DRAFTHOUSE_DEADLINE": str(deadline)},
        "onstart": onstart_of(deadline, hours, url, resolved["site"]["home"]),
        "cancel_unavail": True,
    }


def ports_of(resolved: ResolvedProfile) -> list[int]:
    """Ports to open to the internet besides SSH: the gateway's, or the engine's unless it listens on loopback."""
    gateway = resolved.get("gateway")
    if gateway:
        return [int(gateway["port"])]
    site = resolved["site"]
    if site["host"] in LOOPBACK:
        return []
    return [int(site["port"])]


def onstart_of(deadline: int, hours: float, url: str, home: str = "") -> str:
    """Start script: start the deadline watch, set the environment of SSH sessions, restart the model server.

    The platform runs it at every start of the container. At the first one, ``home`` has no server to restart.
    """
    script = deadline_onstart(deadline, hours, url) + _ENVIRONMENT
    if home:
        script += f's={shlex.quote(home)}/served/start.sh; [ -x "$s" ] && "$s" >/dev/null 2>&1 </dev/null &\n'
    if len(script) > LONGEST_ONSTART:
        raise ValueError(f"the on-start script has {len(script)} characters, {LONGEST_ONSTART} are allowed")
    return script
