"""Which arm a verdict leaves serving."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.action.report import ActionModule, arm_to_serve

from drafthouse.cloud.vast.run_and_destroy import RUN_FILE
from drafthouse.core.places import CLOSING_FILE

SAME = {"release": "0002", "arm": "speculative", "same": True}


@pytest.mark.parametrize(
    ("word", "served", "arm"),
    [
        ("pays", None, "speculative"),
        ("does not pay", SAME, "baseline"),
        ("invalid", SAME, "baseline"),
        # Nobody can say: what serves goes on, and on a new box there is no draft without a reason.
        ("cannot say", SAME, "speculative"),
        ("cannot say", {**SAME, "arm": "baseline"}, "baseline"),
        ("cannot say", {**SAME, "same": False}, "baseline"),
        ("cannot say", None, "baseline"),
        ("cannot say", {}, "baseline"),
    ],
)
def test_the_arm_that_is_left_serving(word: str, served: dict[str, Any] | None, arm: str) -> None:
    assert arm_to_serve(word, served) == arm


def reached(monkeypatch: pytest.MonkeyPatch, transport: str = "local", **resolved: Any) -> Any:
    """What the action says of a server, over a connection of that kind."""
    for name in (CLOSING_FILE, RUN_FILE):
        monkeypatch.delenv(name, raising=False)
    options = {"remote_user": "me", "host": "192.0.2.7", "port": 2222}
    connection = SimpleNamespace(
        become=object(), transport=transport, has_option=options.__contains__, get_option=options.get
    )
    given: Any = {
        "site": {"host": "0.0.0.0", "port": 8100},
        "engine": {"has_key": True},
        "target": {"served_name": "m"},
        "key_file": "/opt/d/secrets/api_key",
        "gateway": None,
        **resolved,
    }
    return ActionModule._connection_of(SimpleNamespace(_connection=connection), given, "box", "lab")  # type: ignore[arg-type]


def test_a_server_here_and_one_over_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    here = reached(monkeypatch)
    assert (here.url, here.tunnel) == ("http://127.0.0.1:8100/v1", "")
    assert here.key_command == "sudo cat /opt/d/secrets/api_key"
    far = reached(monkeypatch, "ssh")
    assert (far.url, far.tunnel) == ("http://127.0.0.1:8000/v1", "make tunnel INVENTORY=lab HOST=box")
    assert far.key_command.startswith("ssh -p 2222 ")
    assert far.key_command.endswith("'sudo cat /opt/d/secrets/api_key'")
    assert reached(monkeypatch, engine={"has_key": False}).key_command == ""


def test_nothing_is_said_of_what_ends_or_has_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reached(monkeypatch, gateway={"port": 443}) is None
    monkeypatch.setattr("os.environ", {CLOSING_FILE: "/tmp/x"})
    given: Any = {}
    assert ActionModule._connection_of(SimpleNamespace(), given, "box", "lab") is None  # type: ignore[arg-type]
