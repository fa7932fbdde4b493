"""The programs of ours that outlive a run on a box, as one file: `drafthouse-HASH.pyz`. The controller's part.

It holds `operate/box_programs.py` and all that this imports. A box's own interpreter runs it (`zipapp` of the standard
library): `python drafthouse-HASH.pyz watchdog HOME`. The role `box_env` lays it down, and whatever starts a program
names it with its hash, so that other sources are another file, and what runs keeps its own.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent.parent
_PACKAGE = "__init__.py"
_PROGRAMS = "operate.box_programs"
_MAIN = f"""import sys

from drafthouse.{_PROGRAMS} import main

sys.exit(main())
"""


def archive_file(home: str | Path) -> str:
    """Where the archive of these sources lies in a box's ``home``."""
    return f"{home}/{archive()[0]}"


@functools.cache
def archive() -> tuple[str, bytes]:
    """The archive's name and its bytes: the same ones for the same sources, whoever builds it."""
    texts = {"__main__.py": _MAIN}
    for name, text in needed_by([_PROGRAMS]).items():
        texts[f"drafthouse/{name}"] = text
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in sorted(texts.items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            # Not compressed: one zlib does not pack like another.
            file.writestr(entry, text.encode())
    data = packed.getvalue()
    return f"drafthouse-{hashlib.sha256(data).hexdigest()[:12]}.pyz", data


def needed_by(modules: Iterable[str], library: Path = LIBRARY) -> dict[str, str]:
    """The texts of these modules (`serving.restore`) and of all that they import, by path, sorted.

    Paths are relative to the library's folder; that each package has its `__init__.py` is seen to. What is imported for
    a type checker alone is imported by its absolute name, and not needed.
    """
    found: dict[str, str] = {}
    waiting = [library / f"{module.replace('.', '/')}.py" for module in modules]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(library).as_posix()
        if name in found:
            continue
        found[name] = file.read_text("utf-8")
        waiting += [library / package / _PACKAGE for package in file.relative_to(library).parents]
        for node in ast.walk(ast.parse(found[name])):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                module = folder.with_suffix(".py")
                if node.module and module.is_file():
                    waiting.append(module)
                else:
                    waiting += [folder / f"{imported.name}.py" for imported in node.names]
    return dict(sorted(found.items()))
