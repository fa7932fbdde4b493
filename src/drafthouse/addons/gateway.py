"""Build the gateway's files from its settings, and the text that tells users how to reach it. Runs on the controller.

The gateway is Caddy in front of the engine: it terminates TLS and requires the API key; the engine listens on loopback
only. `Settings` has all that differs between boxes, and one template renders the Caddyfile of both runtimes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.addresses import in_brackets
from ..core.errors import DrafthouseError, Problem
from ..core.forms import HOST
from ..profiles.gateway_settings import _LABEL, PORT_WITH_A_NAME, name_problems
from ..profiles.render import render_file
from .gateway_door import NAME, admin_socket, certificate_file, door_folder, ready_socket

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File, Folder

# The message of a 503, from a box and from a fleet's front.
_BUSY = "too many requests at once; try again"
_BUSY_FLEET = "no box takes requests at this moment; try again"
# The forms of settings that are written into the Caddyfile.
_UPSTREAM = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}")
_EMAIL = re.compile(r"[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+")
_ACME_URL = re.compile(r"https://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?")
_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
_NOT_IN_A_PATH = set('"`{}\n\\')  # characters that the Caddyfile cannot quote
_MORE_FILES = 2048  # file descriptors for idle connections, and for the program itself
_SOCKET_CHARACTERS = 107  # unix(7): sun_path has 108 bytes, the last one is 0


@dataclass(frozen=True)
class Replica:
    """A box behind a fleet's front."""

    name: str  # in the inventory
    address: str  # of its gateway
    port: int
    certificate: str  # PEM, which the gateway must present

    @property
    def dial(self) -> str:
        """The address and port, as Caddy writes them."""
        return f"{in_brackets(self.address)}:{self.port}"


@dataclass(frozen=True)
class Settings:
    """The settings of a gateway: of a box, or with ``replicas`` of a fleet's front.

    With a ``router_port``, a router on that loopback port chooses the replica instead of Caddy; it reaches the replicas
    at the ports from ``router_port`` + 2 on.
    """

    home: str  # Drafthouse's folder on the box
    port: int  # at which the gateway listens
    upstream: str  # the engine's address and port; a front ignores it
    key_file: str  # with the API key that clients must send
    name: str = ""  # DNS name; '' for none, then the certificate is made on the box
    health: str = "/health"  # the path of the engine's health page
    pass_key: bool = True  # pass the API key on to the engine
    max_body_mb: int = 10  # the largest body of a request
    body_timeout_s: int = 60  # in which a body must arrive
    max_requests: int = 1024  # of all clients together that the engine gets at once
    acme_email: str = ""  # for the certificate authority; '' for none
    acme_ca: str = ""  # the URL of its ACME directory; '' for Caddy's own choice
    binary: str = "caddy"  # on the box or in the image
    digest: str = ""  # a hash of the files that the configuration names (certificate, key); a new one restarts
    hold_s: int = 0  # seconds for which requests may wait at the watchdog's closed door (`switch.py`); 0: no door
    replica: bool = False  # the gateway answers /ready for its fleet's front (`addons/fleet/ready.py`)
    replicas: tuple[Replica, ...] = ()
    policy: str = "least_conn"  # Caddy's rule for choosing a replica
    router_port: int = 0  # 0: no router, Caddy chooses

    @property
    def folder(self) -> str:
        """The gateway's folder on the box."""
        return f"{self.home}/{NAME}"


def problems(settings: Settings) -> list[Problem]:
    """The problems of the settings, by the names of the role's variables."""
    result = name_problems(settings.name, "gateway_name")

    def check(valid: bool, where: str, value: object, needed: str, do: str = "correct it") -> None:
        """Add a problem unless ``valid``."""
        if not valid:
            result.append(Problem("invalid-setting", f"'{value}'", needed, do, where))

    check(1 <= settings.port <= 65535, "gateway_port", settings.port, "a port from 1 to 65535")
    for box in settings.replicas:
        fits = bool(HOST.fits(box.address)) and 1 <= box.port <= 65535
        check(fits, box.name, box.dial, "an address and a port", "set drafthouse_address to where the front reaches it")
    check(
        bool(settings.replicas or _UPSTREAM.fullmatch(settings.upstream)),
        "gateway_upstream",
        settings.upstream,
        "a loopback address of the box with a port: forwarded requests have no TLS",
        "write 127.0.0.1:8000",
    )
    check(bool(_PATH.fullmatch(settings.health)), "gateway_health", settings.health, "a path, such as /health")
    check(0 <= settings.hold_s <= 86_400, "gateway_hold_s", settings.hold_s, "seconds, from 0 to 86400")
    check(
        all(len(path) <= _SOCKET_CHARACTERS for path in _sockets(settings)),
        "gateway_home",
        settings.home,
        f"a shorter path: a socket's path is limited to {_SOCKET_CHARACTERS} characters",
    )
    in_range = 1 <= settings.max_body_mb <= 1000
    check(in_range, "gateway_max_body_mb", settings.max_body_mb, "megabytes, from 1 to 1000")
    in_range = 1 <= settings.body_timeout_s <= 3600
    check(in_range, "gateway_body_timeout_s", settings.body_timeout_s, "seconds, from 1 to 3600")
    in_range = 1 <= settings.max_requests <= 100_000
    check(in_range, "gateway_max_requests", settings.max_requests, "a number of requests, from 1 to 100000")
    mail = not settings.acme_email or bool(_EMAIL.fullmatch(settings.acme_email))
    check(mail, "gateway_acme_email", settings.acme_email, "an email address, or nothing")
    directory = not settings.acme_ca or bool(_ACME_URL.fullmatch(settings.acme_ca))
    check(directory, "gateway_acme_ca", settings.acme_ca, "the https URL of an ACME directory, or nothing")
    for where, path in (("gateway_home", settings.home), ("gateway_key_file", settings.key_file)):
        valid = path.startswith("/") and not _NOT_IN_A_PATH & set(path)
        check(valid, where, path, 'an absolute path without quotes, braces and backslashes: " ` { } \\')
    return result


def _sockets(settings: Settings) -> list[str]:
    """The paths of the Unix sockets that the gateway uses with these settings."""
    sockets = []
    if settings.hold_s:
        sockets.append(f"{door_folder(settings.home)}/pass.sock")
    if settings.replica:
        sockets.append(ready_socket(settings.home))
    if settings.replicas:
        sockets.append(admin_socket(settings.home))
    return sockets


def error_body(message: str, kind: str, code: str | None) -> dict[str, dict[str, str | None]]:
    """The JSON body of an error, as clients of OpenAI's API expect it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def files(templates: Path, settings: Settings) -> list[Folder | File]:
    """The gateway's folders and files as `lay_out` takes them. Raises DrafthouseError with all `problems`."""
    found = problems(settings)
    if found:
        raise DrafthouseError(found)
    folder = settings.folder
    data = {
        **{key: getattr(settings, key) for key in Settings.__dataclass_fields__},
        "folder": folder,
        "storage": _word(f"{folder}/data"),
        "certificate": _word(certificate_file(settings.home)),
        "private_key": _word(f"{folder}/tls/key.pem"),
        "door": _word(door_folder(settings.home)),
        "door_open": _word(f"unix/{door_folder(settings.home)}/open"),
        "door_socket": _word(f"unix/{door_folder(settings.home)}/pass.sock"),
        "door_folder": door_folder(settings.home),
        "ready_socket": _word(f"unix/{ready_socket(settings.home)}"),
        "admin_socket": _word(f"unix/{admin_socket(settings.home)}"),
        "pool": _word(f"{folder}/replicas.pem"),
        # Each request takes two file descriptors: the client's connection and the engine's.
        "max_files": 2 * settings.max_requests + _MORE_FILES,
        "errors": _errors(settings),
        "other_error": error_body("{http.error.status_text}", "server_error", None),  # Caddy fills in the text
    }
    rendered = [render_file(templates, "gateway/Caddyfile.j2", f"{folder}/Caddyfile", "0644", data)]
    if settings.replicas:
        pool = "".join(sorted({box.certificate.strip() + "\n" for box in settings.replicas}))
        rendered.append({"path": f"{folder}/replicas.pem", "mode": "0644", "content": pool})
    # supervisord restarts a program whose script changes. So the script has a hash of all files that Caddy reads.
    data["digest"] = f"Caddyfile {definition(rendered)}, {settings.digest}"
    rendered.append(render_file(templates, "gateway/serve.sh.j2", f"{folder}/serve.sh", "0755", data))
    subfolders = ["data", "logs"]
    if settings.hold_s or settings.replica:
        subfolders.append("data/door")
    if settings.replicas:
        subfolders.append("data/admin")
    folders: list[Folder] = [{"path": folder, "mode": "0755"}]
    folders += [{"path": f"{folder}/{name}", "mode": "0700"} for name in subfolders]
    return [*folders, *rendered]


def _errors(settings: Settings) -> dict[int, dict[str, dict[str, str | None]]]:
    """The bodies of the gateway's own errors, by HTTP status."""
    limit = f"a request is limited to {settings.max_body_mb} MB"
    refused = "invalid_request_error"
    busy = _BUSY
    if settings.replicas:
        busy = _BUSY_FLEET
    return {
        401: error_body("send the API key as: Authorization: Bearer KEY", refused, "invalid_api_key"),
        404: error_body("only /v1/ and /health are served here", refused, "not_found"),
        413: error_body(limit, refused, "request_too_large"),
        502: error_body("the engine does not answer; it may still be starting", "server_error", "engine_away"),
        503: error_body(busy, "server_error", "overloaded"),
    }


def definition(rendered: Iterable[Folder | File]) -> str:
    """A hash (16 hex digits) of the contents of the rendered files, folders left out."""
    return hashlib.sha256("".join(file["content"] for file in rendered if "content" in file).encode()).hexdigest()[:16]


def _word(text: str) -> str:
    """The text as one word of a Caddyfile, in quotes if needed."""
    if re.search(r"[^A-Za-z0-9._/@:-]", text):
        return f'"{text}"'
    return text


def script_of(home: str) -> str:
    """The path of the gateway's start script; if it exists, the box has or had a gateway."""
    return f"{home}/{NAME}/serve.sh"


def alternative_names(addresses: Sequence[str]) -> list[str]:
    """The SubjectAltName entries of a certificate for loopback and ``addresses``.

    A text that is neither an IP address nor a host name (an inventory's name with an underscore, say) is left out.
    """
    names = ["DNS:localhost", "IP:127.0.0.1"]
    for text in addresses:
        word = str(text).strip("[]").lower()
        try:
            names.append(f"IP:{ipaddress.ip_address(word)}")
        except ValueError:
            if re.fullmatch(rf"({_LABEL}\.)*{_LABEL}", word):
                names.append(f"DNS:{word}")
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Reached:
    """How a client reaches a gateway."""

    host: str  # DNS name or address
    port: int
    model: str  # its name in the API
    key_command: str  # the shell command that prints the API key for the user
    trust: str = ""  # the file with the box's certificate; '' if a public authority has signed it
    fingerprint: str = ""  # SHA-256 of that certificate

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        base = f"https://{in_brackets(self.host)}"
        if self.port == PORT_WITH_A_NAME:
            return base
        return f"{base}:{self.port}"


def key_command(key_file: str, ssh: Sequence[str] = (), *, sudo: bool = False) -> str:
    """The shell command that prints the key file, over the command ``ssh`` if given, and with sudo if only root may."""
    words = ["cat", key_file]
    if sudo:
        words.insert(0, "sudo")
    if ssh:
        words = [*ssh, shlex.join(words)]
    return shlex.join(words)


def reached_text(reached: Reached, inventory_name: str, called: str = NAME) -> str:
    """The text at the end of a run: the URL, the certificate, and examples with curl and Python.

    ``called``: what the text calls the server, the gateway or a fleet's front.
    """
    url = reached.url
    trust = reached.trust
    certificate = "certificate: requested and renewed by the gateway"
    curl_trust = ""
    python_trust = ""
    if trust:
        certificate = f"certificate: made on the box, SHA-256 {reached.fingerprint}\n             copied to {trust}"
        curl_trust = f" --cacert {shlex.quote(trust)}"
        python_trust = f"cafile={trust!r}"
    message = {"role": "user", "content": "Say yes."}
    body = json.dumps({"model": reached.model, "max_tokens": 64, "messages": [message]})
    return "\n".join(
        [
            "",
            f"{called} of {inventory_name}: {url}/v1",
            certificate,
            "",
            "# bash: the key goes through a pipe, so that no process list shows it",
            f'export DRAFTHOUSE_API_KEY="$({reached.key_command})"',
            f"curl --silent --show-error{curl_trust}"
            f" {url}/v1/models --header @<(printf 'Authorization: Bearer %s' \"$DRAFTHOUSE_API_KEY\")",
            "",
            "# Python",
            "import json, os, ssl, urllib.request",
            f"trust = ssl.create_default_context({python_trust})",
            f"body = {body}",
            f'request = urllib.request.Request("{url}/v1/chat/completions", json.dumps(body).encode(), {{',
            '    "Authorization": "Bearer " + os.environ["DRAFTHOUSE_API_KEY"], "Content-Type": "application/json"})',
            "answer = json.load(urllib.request.urlopen(request, context=trust))",
            'print(answer["choices"][0]["message"]["content"])',
        ]
    )
