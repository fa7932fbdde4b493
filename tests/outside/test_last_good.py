"""Role last_good: what should serve comes back with the box."""

from __future__ import annotations

from typing import Any


def test_the_unit_is_there_and_wanted(host: Any) -> None:
    unit = host.file("/etc/systemd/system/drafthouse-serve.service")
    assert (unit.user, unit.mode) == ("root", 0o644)
    assert host.service("drafthouse-serve").is_enabled


def test_what_it_starts_is_root_s(host: Any) -> None:
    start = host.file("/opt/drafthouse/served/start.sh")
    assert (start.user, start.mode & 0o022) == ("root", 0)
