"""Who connects: root, somebody who may become root with a password, and somebody who may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.hosts.hosts import Ended, Host, Lab

pytestmark = pytest.mark.soak

PASSWORD = "correct horse"
PROFILE: dict[str, Any] = {"profile": "cpu-smollm2-ngram", "drafthouse_overrides": {"runtimes": ["docker"]}}
USERS = r"""
for user in may mayNot; do
  id $user 2>/dev/null || useradd --create-home --shell /bin/sh $user
  install -D -o $user -m 600 /root/.ssh/authorized_keys /home/$user/.ssh/authorized_keys
  chown -R $user: /home/$user/.ssh
done
echo 'may:%s' | chpasswd
"""
Play = Callable[..., Ended]


@pytest.fixture(scope="module")
def box(workstation: Host) -> Host:
    workstation.exec("sh", "-c", USERS % PASSWORD)
    workstation.put("/etc/sudoers.d/may", "may ALL=(ALL) ALL\n", "0440")
    return workstation


@pytest.fixture
def site(lab: Lab, box: Host, image: str) -> Play:
    """Play a phase as a user."""
    inventory = lab.inventory([box], group_vars={**PROFILE, "drafthouse_engine_image": image}, like="workstation")

    def play(tags: str, **user: Any) -> Ended:
        return lab.play("site.yml", inventory, "--tags", tags, **user)

    return play


def test_root_and_whoever_becomes_root_with_a_password_pass(site: Play) -> None:
    for user in (
        {"ansible_user": "root"},
        {"ansible_user": "may", "ansible_become": True, "ansible_become_password": PASSWORD},
    ):
        done = site("preflight", **user)
        assert "root-required" not in done.output, done.output
        assert PASSWORD not in done.output
        assert done.status == 0, done.output[-2000:]


def test_whoever_may_not_is_told_the_ways(site: Play) -> None:
    done = site("preflight", ansible_user="mayNot")
    assert done.status != 0
    assert "code: root-required" in done.output
    assert "-b" in done.output
    assert "-K" in done.output


def test_a_wrong_password_is_told_in_our_words(site: Play) -> None:
    done = site("preflight", ansible_user="may", ansible_become=True, ansible_become_password="wrong")
    assert done.status != 0
    assert done.lines("found")
    assert done.lines("do")
    assert "Traceback" not in done.output


def test_the_firewall_is_set_with_a_password(site: Play, box: Host) -> None:
    user = {"ansible_user": "may", "ansible_become": True, "ansible_become_password": PASSWORD}
    done = site("firewall", **user)
    assert done.status == 0, done.output[-2000:]
    assert "DRAFTHOUSE-INPUT" in box.exec("iptables-save").stdout
    assert site("firewall", **user).changed == 0
