"""Check options of an engine or a method: type and value, and that the engine version and the GPU support them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..core.errors import did_you_mean
from ..core.forms import VALUE
from ..core.schema import Findings, Value, check
from ..core.versions import having, ranges, supports
from .draft_compat import check_schedule
from .token_counts import tokens_in

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, MethodOption, Option, Options, Versioned
    from drafthouse.profiles.resolved_types import Hardware

_TYPES = {"int": int, "float": float, "str": str, "bool": bool}


def version_defaults(engine: EngineEntry, version: str) -> Options:
    """The options that every arm of this version gets where the profile does not set them.

    ``version``: '' for one that does not exist, which counts as older than any.
    """
    specs = engine["options"].items()
    return {key: spec["unless_said"] for key, spec in specs if "unless_said" in spec and supports(version or "0", spec)}


# What is needed in place of a lossy setting, one that lets the engine give other answers than the target's.
LOSSLESS = "the target's own answers: here the speed is bought with others"


def lossy_word(engine: EngineEntry, key: str, value: object) -> str:
    """How a setting of speculation changes the target's answers; '' if it does not.

    ``key``: as the catalogue or the engine writes it.
    """
    lossy = engine["speculation"].get("lossy", {})
    word = key.removeprefix("--").removeprefix("speculative-").replace("-", "_")
    return lossy.get(f"{word}={value}".lower()) or lossy.get(word, "")


@dataclass(frozen=True)
class OptionCheck:
    """Checks of options against an engine version and a hardware; problems go to ``findings``."""

    findings: Findings
    engine: str  # its name, for messages
    version: str  # '' if the profile's does not exist: then no version is checked
    releases: list[str]  # all versions of the engine, oldest first
    hardware: Hardware
    tokens: int  # K

    def options(self, path: str, given: object, options: Mapping[str, Option] | Mapping[str, MethodOption]) -> Options:
        """The ``given`` options with a valid value, by key; numbers of tokens as integers.

        An option that this version or GPU lacks is a problem and stays. ``path``: that of ``given`` in the profile.
        ``options``: what the catalogue has.
        """
        valid: Options = {}
        if not isinstance(given, Mapping):
            self.findings.add("wrong-type", path, repr(given), "keys with values", "write it as a YAML mapping")
            return {}
        for key, value in given.items():
            where = f"{path}.{key}"
            option = options.get(key)
            if option is None:
                self.findings.add(
                    "unknown-key",
                    where,
                    f"the unknown key '{key}'",
                    f"one of: {', '.join(sorted(options))}",
                    did_you_mean(key, options),
                )
                continue
            if option["type"] == "schedule":
                is_valid = check_schedule(self.findings, where, value, self.tokens)
            elif option["type"] == "tokens":
                is_valid = self._check_tokens(where, value, option)
            else:
                low = 0 if option["type"] in ("int", "float") else None
                choices = tuple(option["choices"]) if "choices" in option else ()
                shape = Value(_TYPES[option["type"]], choices=choices, low=low, form=VALUE)
                is_valid = check(value, shape, self.findings, where)
            if is_valid:
                reason = option["reason"] if "reason" in option else ""  # noqa: SIM401 (one type of the union has it)
                self.check_version(where, f"'{key}'", option, reason)
                self._check_choice(where, value, option)
                # As an integer: some engines misread a unit like k without an error.
                token_count = tokens_in(value) if option["type"] == "tokens" else None
                valid[key] = token_count or value
        return valid

    def _check_tokens(self, where: str, value: object, option: Option | MethodOption) -> bool:
        """Check a number of tokens, or a word for one; True if its form is right.

        Such a word must be known to this version, or there is a problem; its form is right nevertheless.
        """
        means = cast("Option", option).get("means", {})  # an option of a method has none
        is_plain = isinstance(value, (int, str)) and not isinstance(value, bool)
        if not is_plain or (str(value) not in means and not tokens_in(value)):
            alternatives = "".join(f", or {word}" for word in means)
            self.findings.add("wrong-type", where, repr(value), f"tokens, as 8192 or 32k{alternatives}", "correct it")
            return False
        if word := means.get(str(value)):
            self.check_version(where, f"'{value}'", word)
        return True

    def _check_choice(self, where: str, value: Any, option: Option | MethodOption) -> None:
        """Check the value of an option with choices: this version must know it, and this GPU must support it."""
        if "choices" not in option:
            return
        choices = option["choices"]
        if choice := choices.get(value) if isinstance(value, str) else None:
            self.check_version(where, f"'{value}'", choice)
        capability = self.hardware.get("compute_capability")
        refused = option["refused_on"].get(capability) if capability and "refused_on" in option else None
        if refused and value in refused["values"]:
            fitting = [word for word in choices if word not in refused["values"]]
            self.findings.add(
                "option-not-on-gpu",
                where,
                f"{value} on {self.hardware['name']} (compute capability {capability})",
                f"one of: {', '.join(fitting)}: {refused['reason']}",
                "choose another",
            )

    def check_version(self, where: str, feature: str, entry: Versioned, reason: str = "") -> None:
        """Add a problem if this version does not have ``feature``; it names the versions that have it.

        ``entry``: the catalogue's bounds of the feature. ``reason``: why versions lack it, '' if that is not known.
        """
        if not self.version or supports(self.version, entry):
            return
        bounds = ", ".join(f"{word} {entry[word]}" for word in ("since", "until") if word in entry)
        if "except" in entry:
            bounds += f"{', ' if bounds else ''}not {entry['except']['since']} to {entry['except']['until']}"
        have = having(self.releases, entry)
        self.findings.add(
            "option-not-in-version",
            where,
            f"{self.engine} {self.version}, which does not have {feature}{f' ({reason})' if reason else ''}",
            f"a version that has it ({bounds}): {ranges(have, self.releases) or 'none of the catalogue'}",
            f"set engine_version: {have[-1]}" if have else "choose another",
        )
