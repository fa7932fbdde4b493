"""The commands in the pages for people, which are copied as they stand, and what of them a test runs.

A verb of `drafthouse` is run by the test that `examples.py` names. What is no verb stands here.
"""

from __future__ import annotations

import re
import shlex

#: By its first words: the file that runs it. It holds the word behind the colon, where one is given.
RUN_BY: dict[str, str] = {
    ".ci/run": ".github/workflows/ci.yml:.ci/run",
    ".venv/bin/pip download": "tests/e2e/test_offline.py:pip download",
    ".venv/bin/pytest": ".ci/run:make",
    "ansible-inventory -i vastai": "tests/vast/test_inventory.py:ansible-inventory",
    'ansible-playbook "$(drafthouse where)"': "tests/vast/test_installed.py:ansible-playbook",
    "ansible-playbook site.yml -i inventory/workstation": "tests/hosts/test_site_workstation.py:site.yml",
    "ansible-playbook site.yml -i vastai": "tests/vast/test_whole_way.py:site.yml",
    "ansible-playbook site.yml -i workstation": "tests/hosts/test_site_workstation.py:site.yml",
    "curl -s http://127.0.0.1:8000": "tests/unit/report/test_connection.py:curl",
    "curl -s http://127.0.0.1:9490": "tests/hosts/test_monitoring.py:/api/v1/alerts",
    "export PIP_NO_INDEX": "tests/e2e/test_offline.py:export PIP_NO_INDEX",
    "make gpu-luggage": "tests/unit/gpu/test_luggage.py:luggage",
    "make monitoring-check": "tests/unit/addons/test_monitoring_check.py:monitoring_check",
    "make sbom": "tests/unit/cli/test_sbom.py:sbom",
    "make test": ".ci/run:lanes",
    "make test-gpu": "tests/unit/gpu/test_level0.py:level0",
    "make truth": "tests/unit/analysis/test_truth.py:table",
    "make venv": "tests/e2e/test_offline.py:make venv",
    "make venv-dev": ".ci/run:make venv-dev",
    "make wheel": "tests/e2e/test_wheel.py:hatchling",
    "export HTTPS_PROXY=": "tests/e2e/test_behind_a_proxy.py:HTTPS_PROXY",
    "export UV_DEFAULT_INDEX=": "tests/e2e/test_behind_a_proxy.py:UV_DEFAULT_INDEX",
    "export HF_ENDPOINT=": "tests/weights/test_hub_habits.py:HF_ENDPOINT",
    'export ANSIBLE_CONFIG="$(drafthouse where config)"': "tests/vast/test_installed.py:where",
    'pip install "$(ls build/drafthouse-*.whl)[deploy]"': "tests/vast/test_installed.py:deploy",
    "uvx --from": "tests/vast/test_installed.py:tool",
    "tail -n1 /opt/drafthouse/watchdog/journal.jsonl": "tests/health/test_watchdog.py:journal",
}
#: What no test runs, and why: a program of the reader's own.
NOT_RUN = {
    "$EDITOR inventory/fleet": "the reader's own boxes",
    "pre-commit install": "the reader's choice; its hooks are those of make lint",
    "read -rs VAST_API_KEY": "the shell's own",
    "ssh -L": "OpenSSH's own; make tunnel is tested",
}
# What a reader types is `sh`; somebody else's script is `bash`, output `text`.
_TYPED = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SET = re.compile(r"^(?:[A-Z_]+=\S*\s+)+")


def commands_of(page: str) -> list[str]:
    """The commands that a page has its reader type, without settings of the environment."""
    lines = [line.strip() for block in _TYPED.findall(page) for line in block.replace("\\\n", " ").splitlines()]
    return [_SET.sub("", line) for line in lines if line and not line.startswith("#")]


def verb_words(command: str) -> list[str] | None:
    """The words of a verb of `drafthouse`, or None for another program; `make` is no program of a verb here."""
    text = re.sub(r"^source <\((.*)\)$", r"\1", command)
    if not text.startswith("drafthouse "):
        return None
    return shlex.split(re.split(r" [<>] ", text)[0])[1:]
