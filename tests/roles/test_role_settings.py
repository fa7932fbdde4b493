"""What an inventory sets of a role is held against the role's specs before anything else: by site.yml's first task."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from drafthouse.profiles.workspace import ROOT
from tests.roles.test_specs import ROLES

PROGRAM = Path(sys.executable).with_name("ansible-playbook")


def refusals(**variables: object) -> list[str]:
    """What the first phase says is wrong of these settings, the names first."""
    words = [str(PROGRAM), "site.yml", "-i", "inventory/local", "--tags", "preflight", "-e", json.dumps(variables)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == ("code: invalid-setting" in done.stdout), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("where: ", "found: "))]


def test_all_of_them_at_once_and_before_anything_is_gathered() -> None:
    told = refusals(gateway_hold_s="abc", report_serve_arm="fast", weights_max_workers="8", gateway_unknown="x")
    assert [line for line in told if line.startswith("where")] == ["where: gateway_hold_s", "where: report_serve_arm"]
    assert "auto, baseline, speculative" in " ".join(told)


def test_no_role_is_included_without_either_check() -> None:
    """site.yml leaves Ansible's own out, since its first task has looked at all roles by then."""
    site = (ROOT / "site.yml").read_text("utf-8")
    assert site.index("drafthouse.core.resolve") < site.index("rolespec_validate: false")
    assert all((role / "meta" / "argument_specs.yml").is_file() for role in ROLES)
