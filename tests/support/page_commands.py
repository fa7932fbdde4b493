"""The commands in the pages for people, as they stand behind a prompt, and what of them a test runs.

A verb of `drafthouse` is run by the test that `examples.py` names. What is no verb stands here.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

#: By its first words: the file that runs it. It holds the word behind the colon, where one is given.
RUN_BY: dict[str, str] = {
    ".ci/run": ".github/workflows/ci.yml:.ci/run",
    ".venv/bin/pytest": ".ci/run:make",
    "ansible-inventory -i vastai": "tests/vast/test_inventory.py:ansible-inventory",
    "ansible-playbook site.yml -i inventory/workstation": "tests/hosts/test_site_workstation.py:site.yml",
    "ansible-playbook site.yml -i vastai": "tests/vast/test_whole_way.py:site.yml",
    "ansible-playbook site.yml -i workstation": "tests/hosts/test_site_workstation.py:site.yml",
    "curl -s http://127.0.0.1:8000": "tests/unit/report/test_connection.py:curl",
    "curl -s http://127.0.0.1:9490": "tests/hosts/test_monitoring.py:/api/v1/alerts",
    "make gpu-luggage": "tests/unit/gpu/test_luggage.py:luggage",
    "make monitoring-check": "tests/unit/addons/test_monitoring_check.py:monitoring_check",
    "make sbom": "tests/unit/cli/test_sbom.py:sbom",
    "make soak": "Makefile:pytest -m soak",
    "make test": ".ci/run:lanes",
    "make test-gpu": "tests/unit/gpu/test_level0.py:level0",
    "make truth": "tests/unit/analysis/test_truth.py:table",
    "make venv-dev": ".ci/run:make venv-dev",
    "make wheel": "tests/e2e/test_wheel.py:hatchling",
    "python -m tests.hosts.growth docs": "tests/hosts/test_scale.py:growth",
    "tail -n1 /opt/drafthouse/watchdog/journal.jsonl": "tests/health/test_watchdog.py:journal",
}
#: What no test runs, and why: a program of the reader's own.
NOT_RUN = {
    "$EDITOR inventory/fleet": "the reader's own boxes",
    "pre-commit install": "the reader's choice; its hooks are those of make lint",
    "pipx install": "pip installs the same wheel in tests/e2e/test_wheel.py",
    "uvx --from": "pip installs the same wheel in tests/e2e/test_wheel.py",
    "read -rs VAST_API_KEY": "the shell's own",
    "ssh -L": "OpenSSH's own; make tunnel is tested",
}
_BLOCK = re.compile(r"^```(?:console|sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SET = re.compile(r"^(?:[A-Z_]+=\S*\s+)+")


def commands_of(page: Path) -> list[str]:
    """Return the commands behind a prompt in a page's blocks, without comments and settings of the environment."""
    found = []
    for block in _BLOCK.findall(page.read_text("utf-8")):
        lines = block.replace("\\\n", " ").splitlines()
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found += [_SET.sub("", re.sub(r"\s+#\s.*$", "", line)).strip() for line in typed]
    return found


def verb_words(command: str) -> list[str] | None:
    """Return the words of a verb of `drafthouse`, or None for another program; `make` is no program of a verb here."""
    text = re.sub(r"^source <\((.*)\)$", r"\1", command)
    if not text.startswith("drafthouse "):
        return None
    return shlex.split(re.split(r" [<>] ", text)[0])[1:]
