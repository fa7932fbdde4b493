"""The request that rents a box for a profile: image, disk, ports, and the script that the box runs at its start.

Nothing secret stands in it: the container's environment and on-start script show in the account's console, on the host
and to every process of the box. Keys and tokens come later, over SSH, into files with mode 0600.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, TypedDict

from ...cloud.deadline import onstart as deadline_onstart
from ...core.errors import one_problem

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile

# SSH directly where the machine has ports, and through vast.ai's proxy besides (the first word is spelled so).
RUNTYPE = "ssh_direc ssh_proxy"
# What the API takes (seen in its answers; longer ones are refused).
LONGEST_ONSTART = 4048
LOOPBACK = ("127.0.0.1", "::1", "localhost")

# SSH sessions do not get the container's environment, but they read /etc/environment, as everybody on the box may. So
# only names go there that are known to hold no secret, and no name that sounds like one; values of several lines could
# pass for such names, and are left out. At every start anew: the external ports may be others by then.
_ENVIRONMENT = r"""
sed -i '/^# drafthouse begin$/,/^# drafthouse end$/d' /etc/environment 2>/dev/null
{ echo '# drafthouse begin'
  env -0 | tr '\n\0' '\1\n' | grep -E '^(PATH|LD_LIBRARY_PATH|PUBLIC_IPADDR|CONTAINER_ID|GPU_COUNT|VAST_(TCP|UDP)_PORT_[0-9]+|CUDA_[A-Z_]+|NVIDIA_[A-Z_]+|DRAFTHOUSE_[A-Z_]+)=' | grep -vE '^[^=]*(KEY|TOKEN|SECRET|PASS)' | grep -v $'["\1]'
  echo '# drafthouse end'; } >>/etc/environment
mkdir -p /workspace
"""  # noqa: E501 (one pattern)


class RentRequest(TypedDict):
    """What is sent to rent an offer."""

    client_id: str
    image: str
    disk: int
    label: str
    runtype: str
    env: dict[str, str]
    onstart: str
    cancel_unavail: bool


def body_of(resolved: ResolvedProfile, label: str, deadline: int, hours: float, url: str) -> RentRequest:
    """What is sent to rent an offer; on demand, so without a price of its own.

    Raises DrafthouseError where the catalogue has no image to rent with.
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
        # Rented means running: a machine that cannot start it now says so, and keeps nothing.
        "cancel_unavail": True,
    }


def ports_of(resolved: ResolvedProfile) -> list[int]:
    """The ports of the box that the internet is to reach besides SSH's: the gateway's, else an open engine's."""
    gateway = resolved.get("gateway")
    if gateway:
        return [int(gateway["port"])]
    site = resolved["site"]
    if site["host"] in LOOPBACK:
        return []
    return [int(site["port"])]


def onstart_of(deadline: int, hours: float, url: str, home: str = "") -> str:
    """The on-start script: the watch over the deadline, what SSH sessions are to see, and what served before.

    The platform runs it at every start of the container; of the first one there is nothing in our ``home`` to start.
    """
    script = deadline_onstart(deadline, hours, url) + _ENVIRONMENT
    if home:
        script += f's={shlex.quote(home)}/served/start.sh; [ -x "$s" ] && "$s" >/dev/null 2>&1 </dev/null &\n'
    if len(script) > LONGEST_ONSTART:
        raise ValueError(f"the on-start script has {len(script)} characters, {LONGEST_ONSTART} are allowed")
    return script
