"""The speculation in a command: three ways to write it in vLLM, flags in llama.cpp, a YAML key in TensorRT-LLM.

All of them end as one `Speculation`: what a profile says, and the same in the engine's own words of today.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .problems import HouseError, Problem
from .translate_flags import Change, Given, apply_keys
from .versions import known

Data = dict[str, Any]
_LOOKUP_WORDS = ("[ngram]", "ngram")


@dataclass
class Speculation:
    """What a command says of speculation. ``tokens`` is None where it leaves their number out."""

    method: str
    draft: str
    tokens: int | None
    words: Data  # in the engine's own words of today
    options: Data = field(default_factory=dict)  # in a profile's words
    unknown: list[str] = field(default_factory=list)  # keys that the catalogue does not know


def whole_number(value: object, where: str) -> int:
    """Return a number of tokens, 1 or more; raises HouseError for anything else."""
    number = int(value) if isinstance(value, str) and value.strip().isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return number
    found = "no number" if value is True else repr(value)
    raise HouseError(Problem(found, "a whole number, 1 or more", "say how many tokens to draft in one step", where))


# --- vLLM -------------------------------------------------------------------------------------------------


def take_vllm(found: list[Given]) -> tuple[list[Given], Data]:
    """Take the speculation out of vLLM's flags and return the others, and it as one table.

    The JSON, dotted keys and separate flags may be mixed; HouseError where they contradict each other.
    """
    rest: list[Given] = []
    raw: Data = {}
    said: dict[str, str] = {}
    for given in found:
        head, dot, key = given.name.partition(".")
        if head != "speculative-config":
            rest.append(given)
            continue
        items = {key: _json_value(given.value)} if dot else _json(given)
        for name, value in items.items():
            *parents, last = name.replace("-", "_").split(".")
            place = raw
            for parent in parents:
                place = place.setdefault(parent, {})
            if last in place and str(place[last]) != str(value):
                raise HouseError(_two(last, place[last], said.get(last, "?"), value, given.spelled))
            place[last] = value
            said[last] = given.spelled
    return rest, _one_method(raw, said)


def _two(key: str, one: object, where: str, other: object, there: str) -> Problem:
    what = "two methods at once" if key in ("method", "model") else f"two values of {key}"
    return Problem(
        f"{what}: {one} ({where}) and {other} ({there})",
        "one way to speculate",
        f"remove {where} or {there}",
        "speculation",
    )


def _json_value(value: Any) -> Any:
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value


def json_fault(error: json.JSONDecodeError) -> str:
    """Return line, column and words of a fault in JSON, the same from every Python.

    A comma before a closing bracket is told apart since 3.13, and with the place of the comma; older ones tell that
    of the bracket (https://docs.python.org/3/whatsnew/3.13.html#json).
    """
    comma = re.compile(r",\s*").match(error.doc, error.pos) if error.msg.startswith("Illegal trailing comma") else None
    place = comma.end() if comma else error.pos
    before = error.doc[:place].rstrip()
    trailing = before.endswith(",") and error.doc[place : place + 1] in ("}", "]")
    same = json.JSONDecodeError("a comma before the closing bracket" if trailing else error.msg, error.doc, place)
    return f"line {same.lineno}, column {same.colno}: {same.msg}"


def _json(given: Given) -> Data:
    """Return the JSON of --speculative-config; raises HouseError with line and column where it is none."""
    try:
        data = json.loads(given.value) if isinstance(given.value, str) else None
        reason = f"{type(given.value).__name__} instead of text"
    except json.JSONDecodeError as error:
        data, reason = None, json_fault(error)
    else:
        reason = f"{type(data).__name__}, not keys with values" if data is not None else reason
    if not isinstance(data, dict):
        raise HouseError(
            Problem(
                f"text that is not JSON ({reason})",
                'keys with values, as {"method": "eagle3", "model": "...", "num_speculative_tokens": 3}',
                "correct it; the whole JSON stands in one pair of single quotes",
                given.spelled,
            )
        )
    return data


def _one_method(raw: Data, said: Mapping[str, str]) -> Data:
    """Write the method out where the model names a lookup, and refuse two methods at once."""
    if raw.get("model") in _LOOKUP_WORDS:
        if raw.get("method", "ngram") not in _LOOKUP_WORDS:
            raise HouseError(_two("method", raw["method"], said["method"], f"a lookup ({raw['model']})", said["model"]))
        raw = {"method": "ngram", **{key: value for key, value in raw.items() if key not in ("model", "method")}}
    if raw.get("method") in _LOOKUP_WORDS:
        raw["method"] = "ngram"
    lookups = [key for key in raw if key.startswith("prompt_lookup_")]
    if raw.get("model") and (raw.get("method") in ("ngram", "suffix") or (lookups and raw.get("method") is None)):
        key = "method" if raw.get("method") else lookups[0]
        raise HouseError(_two("model", raw["model"], said["model"], f"an n-gram lookup ({raw[key]})", said[key]))
    if lookups and not raw.get("method"):
        raw = {"method": "ngram", **raw}
    return raw


def read_vllm(
    raw: Data,
    engine: Mapping[str, Any],
    table: Mapping[str, Any],
    version: str,
    guess: Callable[[str], str],
    changes: list[Change],
) -> Speculation | None:
    """Make one `Speculation` of vLLM's table; None where the command has none.

    ``guess`` names the method for a draft where the command does not.
    """
    if not raw:
        return None
    draft = str(raw.get("model") or "").rstrip("/")
    method = str(raw.get("method") or "")
    if not method:
        method = guess(draft)
        why = "read from what the draft is; the engine guesses it from the draft's name, so it is written out now"
        changes.append(Change("(no method)", f"method: {method}", "-", why, "chosen"))
    tokens = raw.get("num_speculative_tokens")
    if tokens is not None:
        tokens = whole_number(tokens, "num_speculative_tokens")
    names = _option_names(engine, method)
    own = {key: value for key, value in raw.items() if key in names}
    old = {key: value for key, value in raw.items() if key not in names}
    batch = old.get("disable_by_batch_size")
    settings = {**apply_keys(old, table, changes, "--speculative-config"), **own}
    schedule = "num_speculative_tokens_per_batch_size"
    if (
        batch is not None
        and tokens
        and known(version, engine["methods"].get(method, {}).get("options", {}).get(schedule, {"until": "0"}))
    ):
        most = whole_number(batch, "disable_by_batch_size")
        settings.setdefault(schedule, [[1, most, tokens], [most + 1, most + 1, 0]])
        changes[-1] = Change(
            "disable_by_batch_size",
            schedule,
            changes[-1].version,
            "rows of [first batch size, last, K]; the last row holds for all above it (0.25.0)",
            "renamed",
        )
    words: Data = {"method": method}
    if draft:
        words["model"] = draft
    if tokens is not None:
        words["num_speculative_tokens"] = tokens
    words.update({key: value for key, value in settings.items() if key not in words})
    return _with_options(Speculation(method, draft, tokens, words), names, words)


def _option_names(engine: Mapping[str, Any], method: str) -> dict[str, str]:
    """Return the engine's words for the options of a method -> a profile's."""
    options = engine["methods"].get(method, {}).get("options", {})
    return {str(option["name"]): key for key, option in options.items()}


def _with_options(speculation: Speculation, names: Mapping[str, str], words: Mapping[str, Any]) -> Speculation:
    for key, value in words.items():
        if key in names:
            speculation.options[names[key]] = value
        elif key not in ("method", "model", "num_speculative_tokens"):
            speculation.unknown.append(key)
    return speculation


# --- llama.cpp --------------------------------------------------------------------------------------------


def take_llamacpp(
    found: list[Given], engine: Mapping[str, Any], changes: list[Change]
) -> tuple[list[Given], Speculation | None]:
    """Take the speculation out of llama.cpp's flags and return the others, and it."""
    rest = [given for given in found if not given.name.startswith("spec-")]
    words: Data = {given.name: given.value for given in found if given.name.startswith("spec-")}
    if not words or words.get("spec-type") == "none":
        return rest, None
    draft = str(words.get("spec-draft-model") or words.get("spec-draft-hf") or "")
    method = str(words.get("spec-type") or "")
    if not method:
        method = "draft-simple" if draft else "ngram-mod" if "spec-default" in words else "ngram-simple"
        why = "a draft model alone drafts nothing now; the way to speculate is named" if draft else "none was named"
        changes.append(Change("(no --spec-type)", f"--spec-type {method}", "2026-04 (PR 22397)", why, "chosen"))
    types = method.split(",")
    for old, new in _of_type(types[0], words):
        words[new] = words.pop(old)
    entry = engine["methods"].get(method, {})
    count = str(entry.get("names", {}).get("num_speculative_tokens", "--spec-draft-n-max")).removeprefix("--")
    tokens = whole_number(words[count], f"--{count}") if count in words else None
    if draft and not any(kind.startswith("draft-") for kind in types):
        why = f"--spec-type {method} does not use it; add draft-simple to use both"
        changes.append(Change(draft, draft, "2026-04 (PR 22397)", why, "kept"))
    rest_of = {key: value for key, value in words.items() if key not in ("spec-type",)}
    speculation = Speculation(method, draft, tokens, {"--spec-type": method})
    names = {key.removeprefix("--"): value for key, value in _option_names(engine, method).items()}
    for key, value in rest_of.items():
        speculation.words[f"--{key}"] = value
        if key in names:
            speculation.options[names[key]] = _json_value(value)
        elif key not in ("spec-draft-model", "spec-draft-hf", count):
            speculation.unknown.append(f"--{key}")
    return rest, speculation


def _of_type(kind: str, words: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return which flags go by another name with this --spec-type: each lookup has its own since PR 22397."""
    pairs = []
    for name in words:
        if (
            kind == "ngram-mod"
            and name in ("spec-draft-n-max", "spec-draft-n-min")
            and not words.get("spec-draft-model")
        ):
            pairs.append((name, name.replace("spec-draft", "spec-ngram-mod")))
        elif name.startswith("spec-ngram-simple-") and kind.startswith("ngram-map-k"):
            pairs.append((name, name.replace("ngram-simple", kind)))
    return pairs


# --- TensorRT-LLM -----------------------------------------------------------------------------------------


def read_trtllm(settings: Data, engine: Mapping[str, Any]) -> tuple[Data, Speculation | None]:
    """Take `speculative_config` out of the flat settings of the YAML and return the others, and it."""
    key = f"{engine['speculation'].get('key', 'speculative_config')}."
    rest = {name: value for name, value in settings.items() if not name.startswith(key)}
    words = {name.removeprefix(key): value for name, value in settings.items() if name.startswith(key)}
    if not words:
        return rest, None
    kind = str(words.get("decoding_type", "AUTO"))
    method = next(
        (
            name
            for name, entry in engine["methods"].items()
            if _plain(kind) in (_plain(name), _plain(entry.get("value", name)))
        ),
        kind,
    )
    entry = engine["methods"].get(method, {})
    by_word = {word: neutral for neutral, word in entry.get("names", {}).items()}
    said = {by_word.get(word, ""): value for word, value in words.items() if word in by_word}
    tokens = said.get("num_speculative_tokens", words.get("max_draft_len"))
    draft = str(said.get("model", words.get("speculative_model_dir", ""))).rstrip("/")
    if tokens is not None:
        tokens = whole_number(tokens, f"{key}max_draft_len")
    names = _option_names(engine, method)
    speculation = Speculation(method, draft, tokens, words)
    for word, value in words.items():
        if word in names:
            speculation.options[names[word]] = value
        elif word not in by_word and word not in ("decoding_type", "max_draft_len", "speculative_model_dir"):
            speculation.unknown.append(f"{key}{word}")
    return rest, speculation


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
