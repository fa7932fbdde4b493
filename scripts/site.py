#!/usr/bin/env python3
"""Build the documentation as a site: build/site/index.html, which needs no network.

Only its search needs a web server (python3 -m http.server -d build/site). Its navigation is that of docs/README.md. A
link or anchor that leads nowhere, and a page that is not in the navigation, are errors.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from _clone import parser_of, run

from drafthouse.core.errors import one_problem
from drafthouse.core.exit_codes import DONE
from drafthouse.core.requirement_lines import read_lock
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.workspace import ROOT

_HOME = ROOT / ".drafthouse" / "site"
_LOCK = ROOT / "requirements-site.txt"
_PAGES = ("*.md", "docs/**/*.md", "roles/*/README.md", "benchmarks/*.md")
_LINK = re.compile(r"\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")
#: `1. **Start.** [Getting started](getting-started.md): ...` or `**Measuring**`, and the pages that follow.
_SECTION = re.compile(r"^(?:\d+\. )?\*\*([^*]+?)\.?\*\*", re.MULTILINE)
_PAGE = re.compile(r"\]\(([a-z-]+\.md)\)")

Nav = list["str | dict[str, str | Nav]"]


def navigation(index: str) -> Nav:
    """The site's navigation from the text of docs/README.md: the steps, then the reference."""
    first, _, reference = index.partition("\n## Reference\n")
    reference_nav: Nav = [{"Reference": [{title: [*pages]} for title, pages in _sections(reference)]}]
    about: Nav = [{"About": [f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")]}]
    steps: Nav = [{title: [*pages]} for title, pages in _sections(first)]
    return ["README.md", {"All pages": "docs/README.md"}, *steps, *reference_nav, *about]


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Titles of the sections of a text in the form of docs/README.md, each with its pages."""
    _, *parts = _SECTION.split(text)
    return [
        (title, [f"docs/{page}" for page in _PAGE.findall(pages)])
        for title, pages in zip(parts[::2], parts[1::2], strict=True)
    ]


def staged(folder: Path) -> None:
    """Copy the pages and the files that they link to into ``folder``, with their paths in the clone."""
    pages = sorted(path for pattern in _PAGES for path in ROOT.glob(pattern))
    for page in pages:
        _copied([page, *_linked(page)], folder)


def _linked(page: Path) -> Iterable[Path]:
    """Files of the clone to which the page links."""
    for place in _LINK.findall(page.read_text("utf-8")):
        found = (page.parent / place).resolve()
        if found.is_file() and found.is_relative_to(ROOT):
            yield found


def _copied(files: Iterable[Path], folder: Path) -> None:
    for file in files:
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def built(to: Path, uv: str, words: Sequence[str] = ()) -> None:
    """Build the site into ``to``, with ``words`` as more options of MkDocs. Raises DrafthouseError with its errors."""
    lock = read_lock(_LOCK.read_text("utf-8"))
    ensure_env(EnvRecipe(str(_HOME), no_deps_packages=lock), uv, progress=lambda step, line: print(f"{step}: {line}"))
    nav = navigation((ROOT / "docs" / "README.md").read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as work:
        staged(Path(work) / "docs")
        settings = (ROOT / "mkdocs.yml").read_text("utf-8")
        # JSON is YAML.
        (Path(work) / "mkdocs.yml").write_text(f"{settings}\nnav: {json.dumps(nav)}\n", "utf-8")
        command = [f"{_HOME}/bin/mkdocs", "build", "--strict", "--site-dir", str(to.resolve()), *words]
        # Not --quiet: --strict does not count warnings that are not printed.
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).splitlines()
        found = "\n".join(line for line in lines if not line.startswith("INFO")).strip()
        raise one_problem("program-failed", found, "pages whose links lead somewhere", "correct the pages", "mkdocs")


def for_models(to: Path) -> None:
    """Copy each page's Markdown beside its HTML, and write `llms.txt`, which lists them (https://llmstxt.org)."""
    pages = sorted(path for pattern in _PAGES for path in ROOT.glob(pattern))
    _copied(pages, to)
    lines = [
        "# Drafthouse",
        "",
        "> Add speculative decoding to an LLM server on an NVIDIA GPU, and measure whether it pays.",
    ]
    for section, of_section in _sections((ROOT / "docs" / "README.md").read_text("utf-8")):
        lines += ["", f"## {section}", ""]
        lines += [f"- [{_title(ROOT / page)}]({page})" for page in of_section]
    (to / "llms.txt").write_text("\n".join([*lines, ""]), "utf-8")


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def main() -> int:
    """Build the site, and print its address."""
    parser = parser_of(__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site", help="folder of the site")
    given = parser.parse_args()
    built(given.to, str(ROOT / ".venv" / "bin" / "uv"))
    for_models(given.to)
    print((given.to.resolve() / "index.html").as_uri())
    return DONE


if __name__ == "__main__":
    run(main)
