"""Which of our modules a program on a box needs beside it: those it imports, and theirs. The controller's part."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent


def needed_by(names: Iterable[str], folder: Path = HERE) -> dict[str, str]:
    """Return the text of these modules and of all that they import from beside them, sorted by name."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = (folder / f"{name}.py").read_text("utf-8")
        for node in ast.walk(ast.parse(found[name])):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                waiting += [node.module] if node.module else [one.name for one in node.names]
    return dict(sorted(found.items()))
