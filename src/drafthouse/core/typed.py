"""What a person types: our texts name make's targets, which only a clone has; of a wheel the verbs do the same."""

from __future__ import annotations

import re

from .places import INSTALLED

_VERBS = (
    *("bundle-report", "compare", "destroy", "doctor", "history", "logs", "plan", "profiles", "prune", "rent"),
    *("reports", "rollback", "stop", "teardown", "tune", "tunnel", "upgrade", "verify", "weights"),
)
_TARGET = re.compile(r"\bmake ([a-z0-9.-]*[a-z0-9])((?: [A-Z_]+=(?:'[^']*'|[^\s,;)']+))*)")
_SETTING = re.compile(r" ([A-Z_]+)=(?:'([^']*)'|(\S+))")
#: Settings that stand for a word of their own, or for an option without a value.
_PLAIN = {
    "PROFILE": "{}",
    "ENGINE_VERSION": "{}",
    "ARGS": "{}",
    "YES": "--yes",
    "LIST": "--list",
    "OUTSIDE": "--from {}",
}


def typed(text: str, *, installed: bool = INSTALLED) -> str:
    """``text`` with each target of make as a verb, where a wheel is ``installed``: what is no target of ours stays."""
    if not installed:
        return text
    text = re.sub(r"\bmake (NAME|with the profile's name)", r"drafthouse run \1", text)
    return re.sub(r"\bARGS='([^']*)'", r"-- \1", _TARGET.sub(_as_verb, text))


def _as_verb(found: re.Match[str]) -> str:
    target, settings = found.groups()
    plays = target not in _VERBS
    if plays and not settings:
        return found[0]
    words = ["drafthouse", "run", target] if plays else ["drafthouse", target]
    last: list[str] = []
    for name, quoted, bare in _SETTING.findall(settings):
        value = quoted or bare
        if name == "ARGS" and plays:
            last = ["--", value]
        else:
            words.append(_PLAIN.get(name, f"--{name.lower().replace('_', '-')} {{}}").format(value))
    return " ".join([*words, *last])
