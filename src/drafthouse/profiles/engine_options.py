"""Options of an engine or a method: their types and words, and what a version or a GPU has of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..core.errors import did_you_mean
from ..core.forms import VALUE
from ..core.schema import Findings, Value, check
from ..core.versions import having, known, ranges
from .draft_compat import check_schedule
from .token_counts import counted

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, MethodOption, Option, Options, Versioned
    from drafthouse.profiles.resolved_types import Hardware

_TYPES = {"int": int, "float": float, "str": str, "bool": bool}


def unless_said(engine: EngineEntry, version: str) -> Options:
    """What every arm is given of a version's options where the profile says nothing."""
    options = engine["options"].items()
    return {key: one["unless_said"] for key, one in options if "unless_said" in one and known(version or "0", one)}


LOSSLESS = "the target's own answers: here the speed is bought with others"


def lossy_word(option: Option | MethodOption | None, value: object) -> str:
    """How a word of an option changes the answers; '' where it does not."""
    lossy = cast("MethodOption", option or {}).get("lossy", {})
    return lossy.get(value, "") if isinstance(value, str) else ""


@dataclass(frozen=True)
class OptionCheck:
    """Checks against one version of an engine on some hardware. ``version`` is '' where none that exists was named."""

    findings: Findings
    engine: str
    version: str
    releases: list[str]
    hardware: Hardware
    tokens: int

    def options(self, path: str, given: object, options: Mapping[str, Option] | Mapping[str, MethodOption]) -> Options:
        """Return those of the ``given`` options that are as they should be."""
        right: Options = {}
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
            if why := lossy_word(option, value):
                self.findings.add("lossy-verification", where, f"{value!r}: {why}", LOSSLESS, "choose another")
                fine = False
            elif option["type"] == "schedule":
                fine = check_schedule(self.findings, where, value, self.tokens)
            elif option["type"] == "tokens":
                fine = self._tokens(where, value, option)
            else:
                low = 0 if option["type"] in ("int", "float") else None
                words = tuple(option["choices"]) if "choices" in option else ()
                shape = Value(_TYPES[option["type"]], choices=words, low=low, form=VALUE)
                fine = check(value, shape, self.findings, where)
            if fine:
                reason = option["reason"] if "reason" in option else ""  # noqa: SIM401 (a union, of which one has it)
                self.version_has(where, f"'{key}'", option, reason)
                self._word(where, value, option)
                # Written out: not every engine's parser stumbles over a unit that it does not know.
                number = counted(value) if option["type"] == "tokens" else None
                right[key] = number or value
        return right

    def _tokens(self, where: str, value: object, option: Option | MethodOption) -> bool:
        """Check a number of tokens, or a word in its place, which this version must know."""
        means = cast("Option", option).get("means", {})  # a method's has none
        right = isinstance(value, (int, str)) and not isinstance(value, bool)
        if not right or (str(value) not in means and not counted(value)):
            words = "".join(f", or {word}" for word in means)
            self.findings.add("wrong-type", where, repr(value), f"tokens, as 8192 or 32k{words}", "correct it")
            return False
        if word := means.get(str(value)):
            self.version_has(where, f"'{value}'", word)
        return True

    def _word(self, where: str, value: Any, option: Option | MethodOption) -> None:
        """Check one word of an option: this version must know it, and this hardware must bear it."""
        if "choices" not in option:
            return
        choices = option["choices"]
        if choice := choices.get(value) if isinstance(value, str) else None:
            self.version_has(where, f"'{value}'", choice)
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

    def version_has(self, where: str, what: str, entry: Versioned, reason: str = "") -> None:
        """Add to the findings when the version does not have ``what``, with those that do."""
        if not self.version or known(self.version, entry):
            return
        bounds = ", ".join(f"{word} {entry[word]}" for word in ("since", "until") if word in entry)
        if "except" in entry:
            bounds += f"{', ' if bounds else ''}not {entry['except']['since']} to {entry['except']['until']}"
        have = having(self.releases, entry)
        self.findings.add(
            "option-not-in-version",
            where,
            f"{self.engine} {self.version}, which does not have {what}{f' ({reason})' if reason else ''}",
            f"a version that has it ({bounds}): {ranges(have, self.releases) or 'none of the catalogue'}",
            f"set engine_version: {have[-1]}" if have else "choose another",
        )
