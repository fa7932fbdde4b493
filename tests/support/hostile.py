"""Strings that try to be more than text, every place of some data that can hold one, and a place to run what comes out.

A script that is made of them runs in an empty folder, with programs on its PATH that only write down how they were
called. Whoever gets a word of a string to run leaves a file there.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile
from tests.support import catalogue

Place = tuple[Any, ...]
KEY = object()  # the last part of a place: the key itself, and not what it names

RUN = "touch canary"
PYTHON = "open('canary', 'w')"
#: Each begins or ends something somewhere: a line, a quote, a comment, a tag, a template, an option.
HOSTILE = (
    # lines
    f"\n{RUN}\n", f"\r{RUN}\r", f"\r\n{RUN}", f"\u2028{RUN}\u2028", f"\u2029{RUN}", f"\x85{RUN}", f"\x0b\x0c{RUN}",
    f"\nEOF\n{RUN}\n", f"\nExecStartPre=/bin/{RUN}", f"\nRUN {RUN}", "[section]\nx = 1",
    # a shell
    f"$({RUN})", f"`{RUN}`", f"${{x:-$({RUN})}}", f"'; {RUN}; '", f'"; {RUN}; "', f"'\"'$({RUN})'\"'", f'\\"; {RUN} #',
    f"; {RUN} ;", f"| {RUN}", f"& {RUN} &", f"&& {RUN}", "> canary", f"<({RUN})", "\\", "\\\n", "'", '"', "`", "$",
    "--help", "-", "--", "-o ProxyCommand=touch\\ canary", "~", "*", "=", "!", "!!",
    # what no text holds
    "\0", f"a\0; {RUN}", "\ud800", "\ufffe", "\U0001fffe",
    # a terminal, and who reads it
    "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "\u202etxt.exe", "\u2066\u2069", "\u200f", "\u200b", "\ufeff",
    "\U0001f600 \u00fc",
    # templates and formats
    f"{{{{ lookup('pipe', '{RUN}') }}}}", "{{ 7 * 7 }}", "{# a comment #}", "{% raw %}", "{0.__class__}", "{}", "{",
    "}", f"{{% set x = cycler.__init__.__globals__.os.popen('{RUN}') %}}", "%n%s%d%(here)s%i%u", "%",
    # Python
    f'"""\n{PYTHON}\n"""', f'"""+str({PYTHON})+"""', f"'+str({PYTHON})+'", "'''",
    # comments
    "#", " # c", " ; c", "//", "*/", "-->", "]]>", "<!--",
    # HTML and Markdown
    "</script><script>fetch('//x')</script>", "<img src=x onerror=alert(1)>", "</style>", '" onload="alert(1)', "&lt;",
    "](javascript:alert(1))", "| a | b |", "```\n# h",
    # YAML
    "\t- x", ": x", "- x", "? x", "!!python/name:os.system", "&a *a", "null", "yes", "0x10", "1e3", "@",
    # paths, and sizes
    "..", "../../../../etc", "/", "", " ", "a" * 5000,
)  # fmt: skip


def places(data: Any, at: Place = ()) -> Iterator[Place]:
    """Where strings stand in ``data``: values, and keys (which end in :data:`KEY`)."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if isinstance(key, str):
                yield (*at, key, KEY)
            yield from places(value, (*at, key))
    elif isinstance(data, list | tuple):
        for number, item in enumerate(data):
            yield from places(item, (*at, number))
    elif isinstance(data, str):
        yield at


def put(data: Any, place: Place, change: Any) -> Any:
    """``data`` with the string at ``place`` as ``change`` (a function of it) makes it."""
    if not place:
        return change(data)
    head, rest = place[0], place[1:]
    if rest == (KEY,):
        return {change(key) if key == head else key: value for key, value in data.items()}
    if isinstance(data, Mapping):
        return {key: put(value, rest, change) if key == head else value for key, value in data.items()}
    return [put(item, rest, change) if number == head else item for number, item in enumerate(data)]


def everywhere(data: Any, text: str) -> Any:
    """``data`` with ``text`` behind each string that is a value."""
    if isinstance(data, Mapping):
        return {key: everywhere(value, text) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [everywhere(item, text) for item in data]
    return data + text if isinstance(data, str) else data


def written(data: Any) -> str:
    """``data`` as YAML that says every character of it, also those that YAML itself may not hold."""

    def whole(found: re.Match[str]) -> str:
        return str(json.loads(f'"{found[0]}"'))

    return re.sub(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}", whole, json.dumps(data))


# --- a clone of one profile ---------------------------------------------------------------------------

_PROMPT = {"id": "chat-1", "messages": [{"role": "user", "content": "Say yes."}]}
_SUITE = {"name": "tiny", "description": "a test", "kinds": {"chat": {"output_tokens": 8, "prompts": [_PROMPT]}}}


def whole_of(profile: str, site: Mapping[str, Any]) -> dict[str, Any]:
    """All that a profile is made of: itself, its entries of the catalogue, and a site."""
    own = yaml.safe_load((ROOT / f"profiles/{profile}.yml").read_text("utf-8"))
    own["experiment"] = {"suites": ["tiny"], "kinds": ["chat"], "stock": True}
    own.setdefault("article", "an article")
    own.setdefault("verified", ["a box"])
    models: dict[str, Any] = {}
    wanted = [own["target"], *([own["speculation"]["draft"]] if "draft" in own["speculation"] else [])]
    while wanted:
        key = wanted.pop()
        models[key] = catalogue.table("models")[key]
        wanted += [models[key]["source"]["derived"]["from"]] if "derived" in models[key]["source"] else []
    engine = catalogue.table("engines")[own["engine"]]
    engines = {key: catalogue.table("engines")[key] for key in (own["engine"], engine.get("like")) if key}
    return copy.deepcopy(
        {
            "profile": own,
            "hardware": {own["hardware"]: catalogue.table("hardware")[own["hardware"]]},
            "models": models,
            "engines": engines,
            "site": dict(site),
        }
    )


class Clone:
    """A clone with one profile and its catalogue, which is written anew for each case."""

    def __init__(self, folder: Path, profile: str, templates: Path = ROOT / "templates") -> None:
        self.root, self.profile = folder, profile
        (folder / "profiles/catalog").mkdir(parents=True)
        for name in ("packages.txt", "published.yml"):
            shutil.copy(ROOT / "profiles/catalog" / name, folder / "profiles/catalog")
        # A row is held against engines that this clone need not have: those that the profile accepts by name.
        accepted = load_catalog(ROOT).profiles[profile].get("accept_known_issues", {})
        issues = {name: row for name, row in catalogue.table("known-issues")["issues"].items() if name in accepted}
        file = {"to_come": {"engines": [], "methods": []}, "issues": issues}
        (folder / "profiles/catalog/known-issues.yml").write_text(written(file))
        (folder / "benchmarks").mkdir()
        (folder / "benchmarks/tiny.yml").write_text(written(_SUITE))
        (folder / "templates").symlink_to(templates)

    def resolved(self, whole: Mapping[str, Any]) -> Any:
        """The resolved profile with its files. Raises DrafthouseError."""
        (self.root / f"profiles/{self.profile}.yml").write_text(written(whole["profile"]))
        for name in ("hardware", "models", "engines"):
            catalogue.write(self.root, name, whole[name], written)
        return resolved_profile(self.profile, whole["site"], root=self.root)


# --- a place to run scripts in ------------------------------------------------------------------------

_RECORDER = """#!/bin/sh
printf '%s\\0' "$@" >"$RECORD"
env -0 >"$RECORD.env"
[ -t 0 ] || [ -z "$READS" ] || cat >"$RECORD.in"
printf '{}\\n'
"""


@dataclass(frozen=True)
class Called:
    """How a program was called; ``words`` is None where it never was."""

    words: list[str] | None
    environment: dict[str, str]
    read: str
    said: str


@dataclass
class Sandbox:
    """A folder with programs that write down how they were called, and an empty one in which scripts run."""

    folder: Path
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.programs, self.inside = self.folder / "programs", self.folder / "inside"
        self.programs.mkdir(parents=True)
        self.inside.mkdir()
        self.recorder = self.folder / "recorder"
        self.recorder.write_text(_RECORDER)
        self.recorder.chmod(0o755)

    def has(self, program: str) -> bool:
        """Put a program of that name on the PATH; tell whether a file can have it."""
        if not program or "/" in program or program in (".", "..") or len(program.encode()) > 200:
            return False
        link = self.programs / program
        if not link.is_symlink():
            link.symlink_to(self.recorder)
        return True

    def run(self, words: Sequence[str], **environment: str) -> Called:
        """Run a script; fail where it leaves anything in its folder."""
        record = self.folder / "record"
        for old in self.folder.glob("record*"):
            if old.name != "recorder":
                old.unlink()
        done = subprocess.run(
            words,
            cwd=self.inside,
            env={"PATH": f"{self.programs}:/usr/bin:/bin", "RECORD": str(record), **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=180,
        )  # fmt: skip
        said = done.stdout.decode(errors="replace")
        self.untouched(said)
        if not record.exists():
            return Called(None, {}, "", said)
        read = self.folder / "record.in"
        pairs = (one.partition("=") for one in _strings(self.folder / "record.env"))
        return Called(
            _strings(record), {name: value for name, _, value in pairs}, read.read_text() if read.exists() else "", said
        )

    def untouched(self, said: str = "") -> None:
        """Fail where something was left in the folder."""
        left = sorted(path.name for path in self.inside.iterdir())
        shutil.rmtree(self.inside)
        self.inside.mkdir()
        assert not left, f"it ran: {left} {said[:500]}"


def _strings(file: Path) -> list[str]:
    return [part.decode("utf-8", "surrogateescape") for part in file.read_bytes().split(b"\0")[:-1]]
