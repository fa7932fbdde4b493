"""Pack the programs that keep running on a box, such as the watchdog, into one file: `drafthouse-HASH.pyz`.

The file holds `operate/box_programs.py` and every module that it imports. Python runs such a zip file directly:
`python drafthouse-HASH.pyz watchdog HOME`. The controller builds it, and the role `box_env` copies it to the box. The
name changes with the sources, so that a running program keeps the file that it was started from.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent.parent  # the folder of the package `drafthouse`
_PACKAGE = "__init__.py"  # the file that makes a folder a package
_PROGRAMS = "operate.box_programs"
_MAIN = f"""import sys

from drafthouse.{_PROGRAMS} import main

sys.exit(main())
"""


def archive_file(home: str | Path) -> str:
    """The path of the archive of the current sources in a box's ``home``, Drafthouse's folder there."""
    name, _ = archive()
    return f"{home}/{name}"


@functools.cache
def archive() -> tuple[str, bytes]:
    """The archive's name and content; every machine builds the same bytes from the same sources."""
    texts = {"__main__.py": _MAIN}
    for name, text in needed_by([_PROGRAMS]).items():
        texts[f"drafthouse/{name}"] = text
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, text in sorted(texts.items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, on any machine
            entry.external_attr = 0o644 << 16  # where zip files keep the mode of Unix
            # Uncompressed, because two versions of zlib may compress differently.
            file.writestr(entry, text.encode())
    data = packed.getvalue()
    return f"drafthouse-{hashlib.sha256(data).hexdigest()[:12]}.pyz", data


def needed_by(modules: Iterable[str], library: Path = LIBRARY) -> dict[str, str]:
    """The source texts of modules (`serving.restore`) and of all that they import; path to text, sorted by path.

    Paths are relative to ``library``. The `__init__.py` of each package is included. Imports under TYPE_CHECKING use
    absolute names, which are not followed.
    """
    texts: dict[str, str] = {}
    waiting = [library / f"{module.replace('.', '/')}.py" for module in modules]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(library).as_posix()
        if name in texts:
            continue
        texts[name] = file.read_text("utf-8")
        waiting += [library / package / _PACKAGE for package in file.relative_to(library).parents]
        for node in ast.walk(ast.parse(texts[name])):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                module = folder.with_suffix(".py")
                if node.module and module.is_file():
                    waiting.append(module)
                else:
                    waiting += [folder / f"{imported.name}.py" for imported in node.names]
    return dict(sorted(texts.items()))
