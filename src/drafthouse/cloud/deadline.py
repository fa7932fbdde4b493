"""Pack the deadline watch, a program that destroys a rented box at its deadline, into the box's start script.

The program (deadline_watch.py) runs on the box, so that the box ends even if the controller is gone. It is started
twice, by the start script of the box and later by the playbook under a supervisor; a lock lets one of them work. An
order (the file arm.json) gives the deadline. The start script's order says for how long the box was rented. The
playbook's order, written by the Ansible module `deadline`, says how many seconds are left by the provider's clock
(cloud/vast/clock.py). The wall clocks of box and controller do not matter as long as the provider answers.
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

FOLDER = "/var/lib/drafthouse/deadline"  # of the watch, on the box
_LABEL = re.compile(r"^drafthouse-[a-z0-9]+-(\d{9,11})$")


def deadline_of(label: str | None) -> int | None:
    """Deadline (unix seconds) in the label of an instance; None if Drafthouse did not write the label."""
    match = _LABEL.match(label or "")
    if not match:
        return None
    return int(match[1])


def program() -> str:
    """Source code of the deadline watch."""
    return Path(__file__).with_name("deadline_watch.py").read_text("utf-8")


def onstart(deadline: int, hours: float, url: str) -> str:
    """Shell lines that start the watch; vast.ai accepts start scripts of up to 4048 characters.

    They run at every start of the container. An existing order is kept, because the playbook's is more exact. A watch
    that ends is started again.

    ``deadline``: unix seconds. ``hours``: from the start of the rental to it. ``url``: of vast.ai's API.
    """
    # Base 85 is shorter than base 64, and Python's alphabet for it has no quote and no backslash.
    packed = base64.b85encode(zlib.compress(_shortened(program()).encode(), 9)).decode()
    order = json.dumps({"deadline": deadline, "life_s": round(hours * 3600), "url": url})
    return (
        f"d={FOLDER}; mkdir -p $d; chmod 700 $d\n"
        f"[ -s $d/arm.json ] || echo {shlex.quote(order)} >$d/arm.json\n"
        "python3 -c 'import base64,zlib;print(zlib.decompress(base64.b85decode"
        f"""("{packed}")).decode())' >$d/onstart.py\n"""
        "(while :; do python3 $d/onstart.py $d; sleep 5; done) >/dev/null 2>&1 </dev/null &\n"
    )


def _shortened(text: str) -> str:
    """Shorten a program: remove comments, docstrings and types, rename variables to letters, indent by one blank.

    Names of functions and classes, and attributes, stay. The first 52 variables get a letter, further ones keep their
    names.
    """
    tree = ast.fix_missing_locations(_WithoutTypes().visit(ast.parse(text)))
    variables: dict[str, None] = {}  # a set that keeps its order, so that the same program is always shortened alike
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]  # without the docstring
        if isinstance(node, ast.arg):
            variables[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            variables[node.id] = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            variables.pop(node.name, None)
    short_names = dict(zip(variables, string.ascii_letters, strict=False))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = short_names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = short_names.get(node.arg, node.arg)
    return re.sub(r"(?m)^( +)", lambda match: " " * (len(match[1]) // 4), ast.unparse(tree)) + "\n"


class _WithoutTypes(ast.NodeTransformer):
    """Remove annotations and imports that only a type checker needs."""

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
