"""Texts that mean something to a shell, YAML, a unit or a tool, and exports of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from drafthouse.export.evidence import ReportFacts
from drafthouse.export.order import Order, order_of
from drafthouse.export.targets import TARGETS
from tests.support import exports

#: Each would make the file `PWN` beside the program that runs it, if any of it were executed.
HOSTILE = [
    "x'; touch PWN; echo '",
    'x"; touch PWN; echo "',
    "$(touch PWN)",
    "`touch PWN`",
    "x\ntouch PWN\n",
    "\ntouch PWN",
    "x\n[Service]\nExecStartPost=/bin/touch PWN\n[Container]\nPodmanArgs=--privileged",
    "x\r\nExecStartPre=/bin/touch PWN\r",
    "${{ secrets.HF_TOKEN }} ${{ run.args }} ${{ nothing",
    "$${{ secrets.HF_TOKEN }} $$$ $$x",
    "$VLLM_API_KEY ${VLLM_API_KEY} $(VLLM_API_KEY) $DRAFTHOUSE_API_KEY $ü $",
    "${HOME:-`touch PWN`} ${#body} ${!x}",
    "%n %h %% %s 100%",
    "-rf",
    "--privileged",
    "a\u2028touch PWN\u2029b\x85c\x0bd\x0ce\x1cf",
    "---\nkind: Pod\n...\n",
    "{{ 7 * 7 }} {% raw %} {# x #}",
    "{{ .Values.x }}",
    "' \" \\ \\n \\\\ \\' \\x41",
    "trailing\\",
    "  spaces around \t",
    "key: value # no comment",
    "- a\n- b\n",
    "!!python/object:os.system x",
    "&a *a @x , [ ] { } ? | > =",
    "null",
    "true",
    "0123",
    "1e3",
    "ünï 日本 \U0001f600 \xa0 \u202e \ufeff",
    "\x01\x1b[31m\x7f",
    "a;b",
    "!history !! !$",
    "~ * ? [a-z]",
    "x\n\n",
    " x\n",
    "set -e\n  indented\n\n\tafter\n",
]
#: What no argument can be, or what one tool cannot hand on.
IMPOSSIBLE = ["a\x00b", "half \ud800 character"]
NOT_IN_A_UNIT = ["", ";"]


def profile_with(text: str, models_dir: str, key_file: Path, port: int) -> Any:
    """The profile with ``text`` in every field that a profile or an entry may fill freely."""
    data = copy.deepcopy(exports.resolved(exports.QWEN, models_dir))
    data["key_file"] = str(key_file)
    data["site"]["port"] = port
    for owner, key in ((data, "title"), (data["engine"], "name"), (data["hardware"], "name")):
        owner[key] = f"{owner[key]} {text}"
    data["profile"] = f"{data['profile']} {text}"
    data["engine"]["version"] += text
    data["target"]["served_name"] = text
    for route in data["open_paths"]["routes"]:
        route |= {"path": f"{route['path']}{text}", "gives": text}
    for item in data["weights"]:
        item["path"] = f"{item['path']}{text}"
        item["name"] = text
        item["pinned"] = text
        item["details"] |= {"repo": f"{item['details']['repo']}{text}", "allow": [text, "b"], "ignore": [text]}
    for arm in data["arms"].values():
        arm["flags"][0][0] += text
        arm["flags"] += [["--odd", text], [f"--{text}"], [f"x{text}"]]
        arm["environment"]["ODD"] = text
        arm["container"]["environment"]["ODD_TOO"] = f"a{text}"
    return data


def evidence_with(text: str) -> ReportFacts:
    return ReportFacts(text or "x", "ef" * 32, text, f"Proof: {text}", None, False, {})


def order_with(text: str, target: str, key_file: Path = Path("/drafthouse/secrets/api_key"), port: int = 8000) -> Order:
    one = TARGETS[target]
    data = profile_with(text, one.models_dir, key_file, port)
    return order_of(data, "speculative", keyed=one.keyed, evidence=evidence_with(text))
