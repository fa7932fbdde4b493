"""Which files of the library a program on a box needs: its own, those it imports, and theirs. The controller's part."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent.parent
_PACKAGE = "__init__.py"


def needed_by(modules: Iterable[str], library: Path = LIBRARY) -> dict[str, str]:
    """Return the texts of these modules (`serving.restore`) and of all that they import, by path, sorted.

    Paths are relative to the library's folder; that each package has its `__init__.py` is seen to.
    """
    found: dict[str, str] = {}
    waiting = [library / f"{module.replace('.', '/')}.py" for module in modules]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(library).as_posix()
        if name in found:
            continue
        found[name] = file.read_text("utf-8")
        waiting += [
            package / _PACKAGE for package in file.relative_to(library).parents for package in [library / package]
        ]
        for node in ast.walk(ast.parse(found[name])):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                module = folder.with_suffix(".py")
                waiting += (
                    [module] if node.module and module.is_file() else [folder / f"{one.name}.py" for one in node.names]
                )
    return dict(sorted(found.items()))


def folders_of(names: Iterable[str]) -> list[str]:
    """Return the folders that files of these relative paths lie in, each before those below it."""
    return sorted({parent.as_posix() for name in names for parent in Path(name).parents if parent != Path()})
