"""Role box_env: an environment of our own, beside the system's Python, that only root can change."""

from __future__ import annotations

from typing import Any

VENV = "/opt/drafthouse/venv"


def test_it_has_its_own_python(host: Any) -> None:
    assert host.check_output(f"{VENV}/bin/python -c 'import sys; print(sys.prefix)'") == VENV


def test_nothing_of_it_is_in_the_system_s(host: Any) -> None:
    assert host.run("python3 -c 'import drafthouse'").rc != 0


def test_only_root_changes_it(host: Any) -> None:
    # uv's own lock is empty, and open to all who install there.
    found = host.check_output(f"find {VENV}/ -not -user root -o -perm /022 -not -type l")
    assert [name for name in found.splitlines() if name != f"{VENV}/.lock"] == []
