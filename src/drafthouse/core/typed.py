"""Rewrite `make TARGET` in messages as `drafthouse VERB`, as users of a wheel type it: a wheel has no Makefile."""

from __future__ import annotations

import re

from .places import INSTALLED

# Targets of make that are verbs of the same name; any other target may be a profile.
_VERBS = (
    *("bundle-report", "compare", "destroy", "doctor", "history", "logs", "plan", "profiles", "prune", "rent"),
    *("reports", "rollback", "stop", "teardown", "tune", "tunnel", "upgrade", "verify", "weights"),
)
_TARGET = re.compile(r"\bmake ([a-z0-9.-]*[a-z0-9])((?: [A-Z_]+=(?:'[^']*'|[^\s,;)']+))*)")  # target, settings
_SETTING = re.compile(r" ([A-Z_]+)=(?:'([^']*)'|(\S+))")  # NAME='value in quotes' or NAME=word
#: Make variables that become an argument, or an option of another name; the others become --NAME VALUE.
_SPECIAL = {
    "PROFILE": "{}",
    "ENGINE_VERSION": "{}",
    "ARGS": "{}",
    "YES": "--yes",
    "LIST": "--list",
    "OUTSIDE": "--from {}",
}


def with_verbs(text: str, *, installed: bool = INSTALLED) -> str:
    """``text`` with every `make TARGET` as a verb if a wheel is ``installed``; otherwise unchanged."""
    if not installed:
        return text
    text = re.sub(r"\bmake (NAME|with the profile's name)", r"drafthouse run \1", text)
    return re.sub(r"\bARGS='([^']*)'", r"-- \1", _TARGET.sub(_as_verb, text))


def _as_verb(match: re.Match[str]) -> str:
    """The command of a match of `_TARGET`; a profile's target becomes `drafthouse run PROFILE`."""
    target, settings = match.groups()
    is_profile = target not in _VERBS
    if is_profile and not settings:
        return match[0]  # perhaps no target at all but an English sentence: "make sure"
    words = ["drafthouse", "run", target] if is_profile else ["drafthouse", target]
    ansible_words: list[str] = []
    for name, quoted, bare in _SETTING.findall(settings):
        value = quoted or bare
        if name == "ARGS" and is_profile:
            ansible_words = ["--", value]
        else:
            words.append(_SPECIAL.get(name, f"--{name.lower().replace('_', '-')} {{}}").format(value))
    return " ".join([*words, *ansible_words])
