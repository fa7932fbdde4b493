"""The watch over a rented box's deadline: it runs on the box, and ends it even where nobody else is left to.

The program is deadline_watch.py. It is started twice, and a lock lets one of them watch: by the start script
that the box is rented with, before anything of ours comes over SSH, and by the playbook, under supervision. An order
says until when: the start script's for how long the box was rented, the playbook's how long it still has by the
provider's clock (cloud/vast/clock.py). No wall clock, the box's or the controller's, has a say where the provider
answers. This is the controller's part; what gives the playbook's order is the module `deadline`, which brings as
little along as it can.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import shlex
import string
import zlib
from pathlib import Path

FOLDER = "/var/lib/drafthouse/deadline"
_LABEL = re.compile(r"^drafthouse-[a-z0-9]+-(\d{9,11})$")


def deadline_of(label: str | None) -> int | None:
    """The deadline (unix seconds) out of an instance's label, None where it is none of ours."""
    found = _LABEL.match(label or "")
    if not found:
        return None
    return int(found[1])


def program() -> str:
    """The text of the program."""
    return Path(__file__).with_name("deadline_watch.py").read_text("utf-8")


def onstart(deadline: int, hours: float, url: str) -> str:
    """The shell lines that start the watch with the box; vast.ai takes 4048 characters in all.

    They run at every start of the container. An order that is there stays: a playbook's is the better one.
    """
    # Base 85 has no quote and no backslash, and takes less room than base 64.
    packed = base64.b85encode(zlib.compress(_short(program()).encode(), 9)).decode()
    arm = json.dumps({"deadline": deadline, "life_s": round(hours * 3600), "url": url})
    return (
        f"d={FOLDER}; mkdir -p $d; chmod 700 $d\n"
        f"[ -s $d/arm.json ] || echo {shlex.quote(arm)} >$d/arm.json\n"
        "python3 -c 'import base64,zlib;print(zlib.decompress(base64.b85decode"
        f"""("{packed}")).decode())' >$d/onstart.py\n"""
        "(while :; do python3 $d/onstart.py $d; sleep 5; done) >/dev/null 2>&1 </dev/null &\n"
    )


def _short(text: str) -> str:
    """The program without comments, docstrings and types, and with letters for the names of its variables."""
    tree = ast.fix_missing_locations(_Untyped().visit(ast.parse(text)))
    stored: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.arg):
            stored[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            stored.pop(node.name, None)
    letter = dict(zip(stored, string.ascii_letters, strict=False))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = letter.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = letter.get(node.arg, node.arg)
    return re.sub(r"(?m)^( +)", lambda found: " " * (len(found[1]) // 4), ast.unparse(tree)) + "\n"


class _Untyped(ast.NodeTransformer):
    """Take out what only a type checker reads."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        return None if node.module in ("__future__", "typing") else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)
