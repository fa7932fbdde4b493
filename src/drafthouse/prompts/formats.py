"""Read a user's prompts in Drafthouse's format `messages` or another tool's format, detected by the content.

| format | an entry of the file |
|---|---|
| `messages` | Drafthouse's: OpenAI `messages`, with tools, response format and expected answer |
| `custom` | `{"prompt": "..."}`, optional `output_tokens`: vLLM's `CustomDataset` (vllm/benchmarks/datasets.py) |
| `sharegpt` | `{"conversations": [{"from": "human", "value": "..."}, ...]}` |
| `spec-bench` | `{"question_id": 1, "category": "...", "turns": ["..."]}`: question.jsonl of Spec-Bench and MT-bench |
| `text` | a line of plain text |

A JSON file has one object per line, or one list of objects. `loader.py` reads the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from ..core.documents import BadDocument, json_of
from ..core.errors import DrafthouseError, first_few
from ..core.schema import Findings, check
from ..core.typed_shape import shape_of
from .checks import check_expect, check_request_fields, copy_request_fields
from .suite_types import Line
from .suites import check_id, check_messages, check_suite, short_json
from .synthetic import REPEAT

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Kind, Message, PromptEntry, Suite

#: Output tokens of a user's prompt that sets none; the default of `vllm bench serve`.
DEFAULT_OUTPUT_TOKENS = 256
#: The kind of a user's prompt that sets none.
DEFAULT_KIND = "own"

SUITE, MESSAGES, CUSTOM, SHAREGPT, SPEC_BENCH, TEXT = "suite", "messages", "custom", "sharegpt", "spec-bench", "text"
#: The values of `--dataset-format`; `suite` is Drafthouse's YAML.
FORMATS = (SUITE, MESSAGES, CUSTOM, SHAREGPT, SPEC_BENCH, TEXT)
#: The format of an entry by the key that only it has.
_FORM_OF_KEY = {"messages": MESSAGES, "conversations": SHAREGPT, "turns": SPEC_BENCH, "prompt": CUSTOM}
_KEY_OF_FORM = {form: key for key, form in _FORM_OF_KEY.items()}
_KEYS_NEEDED = "one of the keys " + ", ".join(f"'{key}'" for key in _FORM_OF_KEY)
_LONGEST_KIND = 80  # characters of a kind's name

# Shape of an entry of `messages`.
_LINE = shape_of(Line)


#: A JSON object of another tool's format; its values are not validated yet.
Foreign = Mapping[str, object]


@dataclass(frozen=True)
class Entry:
    """An item of a file."""

    place: str  # for messages: "line 3" or "entry 3"
    number: int  # from 1
    data: Any  # its JSON value


@dataclass
class _Reading:
    """The prompts of a file while it is read, and the problems with it."""

    findings: Findings
    kinds: dict[str, Kind] = field(default_factory=dict)  # the prompts by kind
    ids: set[str] = field(default_factory=set)  # of the prompts
    texts: set[str] = field(default_factory=set)  # the messages of the prompts, to recognise equal ones
    #: How many entries were left out or shortened, by the message for the user ("{}" is the count).
    left_out: dict[str, int] = field(default_factory=dict)

    def add_prompt(self, kind: str, prompt_id: str, messages: list[Message], output_tokens: int | None = None) -> None:
        """Add a prompt with a unique id, or count it in ``left_out`` if an earlier prompt has the same messages."""
        text = json.dumps(messages)
        if text in self.texts:
            self.count_left_out("{} left out: the same as an earlier one")
            return
        self.texts.add(text)
        unique_id = prompt_id.replace(REPEAT, "-")
        while unique_id in self.ids:
            unique_id += "-"
        self.ids.add(unique_id)
        entry = self.kinds.setdefault(kind, {"output_tokens": DEFAULT_OUTPUT_TOKENS, "prompts": []})
        prompt: PromptEntry = {"id": unique_id, "messages": messages}
        if output_tokens is not None:
            prompt["output_tokens"] = output_tokens
        entry["prompts"].append(prompt)

    def count_left_out(self, words: str) -> None:
        """Count an entry for the message ``words``, which the user gets once."""
        self.left_out[words] = self.left_out.get(words, 0) + 1

    def add_wrong_type(self, path: str, value: object, needed: str, do: str) -> None:
        """Record a value of the wrong type."""
        self.findings.add("wrong-type", path, short_json(value), needed, do)

    def suite(self, name: str) -> Suite:
        """The prompts as a suite called ``name``. Raises DrafthouseError with the first problems."""
        left_out = [words.format(count) for words, count in self.left_out.items()]
        if not self.kinds and not self.findings.problems:
            found = f"no prompts ({', '.join(left_out)})" if left_out else "no prompts"
            self.findings.add("no-prompts", "", found, "one or more", "look into the file")
        if self.findings.problems:
            raise DrafthouseError(first_few(self.findings.problems, self.findings.file))
        suite: Suite = {"name": name, "description": f"from {self.findings.file}", "kinds": self.kinds}
        if left_out:
            suite["notes"] = [f"{self.findings.file}: {note}" for note in left_out]
        return suite


# --- entries --------------------------------------------------------------------------------------


def json_lines(text: str, findings: Findings) -> list[Entry]:
    """The JSON value of each line that is not empty; adds a problem for a line that is not JSON."""
    entries = []
    # Not splitlines(): a JSON string may contain U+2028 or U+0085, which are no line ends.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entries.append(Entry(f"line {number}", number, json_of(line)))
        except BadDocument as error:
            found = f"no JSON ({error.why})"
            findings.add("file-malformed", f"line {number}", found, "one JSON object", "correct the line")
    return entries


def _json_entries(text: str, findings: Findings) -> list[Entry]:
    """The entries of a JSON file: the items of its list, its lines, or its only object.

    Adds a problem for each line that is not JSON if another one is an object, else one for a file that is not JSON.
    """
    line_findings = Findings(findings.file)
    if text.lstrip()[:1] != "[":
        entries = json_lines(text, line_findings)
        if any(isinstance(entry.data, dict) for entry in entries):
            findings.problems += line_findings.problems
            return entries
    try:
        data = json_of(text)
    except BadDocument as error:
        findings.add(
            "file-malformed",
            "",
            f"no JSON ({error.why})",
            "a list of objects, or one object a line",
            "correct it at that place",
        )
        return []
    if not isinstance(data, list):
        data = [data]
    return [Entry(f"entry {number}", number, item) for number, item in enumerate(data, start=1)]


def _form_of(data: object) -> str | None:
    """The format of an entry by its keys; None if no key is known."""
    if isinstance(data, Mapping):
        for key, form in _FORM_OF_KEY.items():
            if key in data:
                return form
    return None


def _first_form(entries: Iterable[Entry]) -> str | None:
    """The format of the first entry with a known key; None if there is no such entry."""
    for entry in entries:
        form = _form_of(entry.data)
        if form:
            return form
    return None


def is_json(text: str) -> bool:
    """True if ``text`` begins like a JSON object, or like a list of objects, lists or strings."""
    return re.match(r'\s*(\{|\[\s*[\[{"\]])', text) is not None


def is_suite(text: str) -> bool:
    """True if ``text`` has a suite's key `kinds` at the start of a line (YAML), or begins with a suite's key (JSON)."""
    begins = re.match(r'\s*\{\s*"(kinds|name|description)"\s*:', text)
    return bool(begins) or re.search(r"^[\"']?kinds[\"']?\s*:", text, re.MULTILINE) is not None


def format_of(text: str) -> str | None:
    """The format of a JSON file by its first entry with a known key; None if it has none or is not JSON."""
    if not is_json(text):
        return None
    return _first_form(_json_entries(text, Findings("")))


def read_prompts(text: str, name: str, where: str, form: str | None = None) -> Suite:
    """The prompts of a file, which is no YAML suite, as a suite called ``name``; ``where`` is the file's path.

    ``form`` is the format, None to detect it. Only the first turn of a conversation is sent; the suite's "notes" say
    so, and how many entries were left out. Raises DrafthouseError with the first problems and the number of all.
    """
    reading = _Reading(Findings(where))
    if form == TEXT or (form is None and not is_json(text)):
        _read_text(text, reading, guessed=form is None)
        return reading.suite(name)
    entries = _json_entries(text, reading.findings)
    form = form or _first_form(entries)
    if form is None:
        _add_unknown_format(entries, reading.findings)
    elif form == MESSAGES:
        return suite_from_entries(entries, name, reading.findings)
    else:
        for entry in entries:
            _read_entry(entry, form, reading)
    return reading.suite(name)


def _add_unknown_format(entries: list[Entry], findings: Findings) -> None:
    """Add the problem that no entry has a known key, at the first entry; without entries there is another problem."""
    if not entries:
        return
    data = entries[0].data
    keys = "no object"
    if isinstance(data, Mapping):
        keys = ", ".join(f"'{str(key)[:40]}'" for key in list(data)[:5]) or "no keys"
    findings.add(
        "prompt-format",
        entries[0].place,
        f"JSON of no known format: {keys}",
        _KEYS_NEEDED,
        "rename the key of the prompt's text to 'prompt'",
    )


def _read_entry(entry: Entry, form: str, reading: _Reading) -> None:
    """Add the prompt of an entry of the format ``form``, or the problem with the entry."""
    data = entry.data
    key = _KEY_OF_FORM[form]
    if _has_other_format(entry, form, reading.findings):
        return
    if isinstance(data, Mapping) and key in data:
        _READERS[form](entry, data, reading)
    else:
        reading.findings.add("missing-key", entry.place, f"no key '{key}'", f"an entry of the format {form}", "add it")


def _has_other_format(entry: Entry, form: str, findings: Findings) -> bool:
    """True if an entry has another known format than ``form``, which is added as a problem."""
    data = entry.data
    if isinstance(data, Mapping) and _KEY_OF_FORM[form] in data:
        return False
    other = _form_of(data)
    if other:
        findings.add(
            "prompt-format",
            entry.place,
            f"an entry of the format {other} in a file of {form}",
            "one format in a file",
            "move the entries of the other format to a file of their own",
        )
    return other is not None


def _read_custom(entry: Entry, data: Foreign, reading: _Reading) -> None:
    """Add the prompt of an entry of `custom`, or the problem with the entry."""
    tokens = data.get("output_tokens")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        reading.add_wrong_type(
            f"{entry.place}.output_tokens", tokens, "a whole number above 0", "correct it, or remove the key"
        )
        return
    if _is_text(data["prompt"], f"{entry.place}.prompt", reading):
        reading.add_prompt(DEFAULT_KIND, f"{DEFAULT_KIND}-{entry.number}", _user_messages(data["prompt"]), tokens)


def _read_sharegpt(entry: Entry, data: Foreign, reading: _Reading) -> None:
    """Add the first human turn of an entry of `sharegpt`, with the system messages before it, or the problem."""
    turns = data["conversations"]
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        reading.add_wrong_type(f"{entry.place}.conversations", turns, "a list of turns", "correct the entry")
        return
    messages: list[Message] = []
    for index, turn in enumerate(turns):
        speaker = turn.get("from")
        if speaker == "system" and isinstance(turn.get("value"), str) and turn["value"].strip():
            messages.append({"role": "system", "content": turn["value"]})
        elif speaker in ("human", "user"):
            if _is_text(turn.get("value"), f"{entry.place}.conversations[{index}].value", reading):
                if any(later.get("from") in ("human", "user") for later in turns[index + 1 :]):
                    reading.count_left_out("{} conversations have further turns: only the first one is sent")
                reading.add_prompt(
                    DEFAULT_KIND, f"{DEFAULT_KIND}-{entry.number}", [*messages, *_user_messages(turn["value"])]
                )
            return
    # Published ShareGPT files have conversations without a human turn.
    reading.count_left_out("{} conversations left out: nobody asks anything in them")


def _read_spec_bench(entry: Entry, data: Foreign, reading: _Reading) -> None:
    """Add the first turn of an entry of `spec-bench`, whose category is the kind, or the problem with the entry."""
    turns = data["turns"]
    kind = data.get("category", DEFAULT_KIND)
    if not isinstance(turns, list) or not turns:
        reading.add_wrong_type(f"{entry.place}.turns", turns, "a list with one turn or more", "correct the entry")
        return
    if not isinstance(kind, str) or not kind.isprintable() or not 0 < len(kind) <= _LONGEST_KIND:
        needed = f"a name of {_LONGEST_KIND} characters at most"
        reading.add_wrong_type(f"{entry.place}.category", kind, needed, "correct it, or remove the key")
        return
    if not _is_text(turns[0], f"{entry.place}.turns[0]", reading):
        return
    if len(turns) > 1:
        reading.count_left_out("{} questions have further turns: only the first one is sent")
    number = data.get("question_id")
    plain = isinstance(number, int) or (isinstance(number, str) and number.isprintable() and len(number) < 40)
    if not plain:
        number = entry.number
    reading.add_prompt(kind, f"{kind}-{number}", _user_messages(turns[0]))


_READERS: dict[str, Callable[[Entry, Foreign, _Reading], None]] = {
    CUSTOM: _read_custom,
    SHAREGPT: _read_sharegpt,
    SPEC_BENCH: _read_spec_bench,
}


def _read_text(text: str, reading: _Reading, *, guessed: bool) -> None:
    """Add a prompt per line. If the format was ``guessed``, a line of a known JSON format is a problem."""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped:
            continue
        if guessed and stripped.startswith("{") and _form_of(_json_or_none(stripped)):
            found = "a line of JSON in a file that begins with plain text"
            do = "move it to a file of its own, or pass --dataset-format text to send it as it is"
            reading.findings.add("prompt-format", f"line {number}", found, "one format in a file", do)
            continue
        reading.add_prompt(DEFAULT_KIND, f"{DEFAULT_KIND}-{number}", _user_messages(stripped))


def _json_or_none(text: str) -> object:
    """The value of a JSON text; None if it is none."""
    try:
        return json_of(text)
    except BadDocument:
        return None


def _is_text(value: object, path: str, reading: _Reading) -> TypeGuard[str]:
    """True for a text that is not blank; adds a problem for any other value."""
    if isinstance(value, str) and value.strip():
        return True
    reading.add_wrong_type(path, value, "the text of the prompt", "correct the entry, or remove it")
    return False


def _user_messages(text: str) -> list[Message]:
    """A text as the only message, of the user."""
    return [{"role": "user", "content": text}]


# --- the format `messages` --------------------------------------------------------------------------------


def suite_from_entries(entries: Iterable[Entry], name: str, findings: Findings) -> Suite:
    """A suite from entries of the format `messages`; ``findings`` may have problems from parsing the file.

    Optional keys: id (default: the kind and the entry's number), kind (default "own"), output_tokens (default 256),
    tools, tool_choice, response_format, `request` for further fields, and `expect`. Raises DrafthouseError with the
    first problems, in the order of the lines.
    """
    kinds: dict[str, Kind] = {}
    had_problems = bool(findings.problems)
    where = findings.file
    for entry in entries:
        data = entry.data
        place = entry.place
        problems_before = len(findings.problems)
        if not _has_other_format(entry, MESSAGES, findings) and check(data, _LINE, findings, place):
            check_messages(data["messages"], f"{place}.messages", findings)
            _check_line(data, findings, place)
        if len(findings.problems) == problems_before:
            line: Line = data
            kind = line.get("kind", DEFAULT_KIND)
            of_kind = kinds.setdefault(kind, {"output_tokens": DEFAULT_OUTPUT_TOKENS, "prompts": []})
            prompt_id = line.get("id", f"{kind.replace(REPEAT, '-')}-{entry.number}")
            prompt: PromptEntry = {"id": prompt_id, "messages": line["messages"]}
            copy_request_fields(prompt, line)
            if "output_tokens" in line:
                prompt["output_tokens"] = line["output_tokens"]
            if "expect" in line:
                prompt["expect"] = line["expect"]
            if "tool_choice" in line:
                prompt["request"] = {**prompt.get("request", {}), "tool_choice": line["tool_choice"]}
            of_kind["prompts"].append(prompt)
    if had_problems:  # those of parsing are of any line
        findings.problems.sort(key=lambda problem: _line_number(problem.where))
    if not kinds and not findings.problems:
        findings.add("no-prompts", "", "no lines", "one prompt a line", 'write {"messages": [{"role": "user", ...}]}')
    if findings.problems:
        raise DrafthouseError(first_few(findings.problems, where))
    return check_suite({"name": name, "description": f"from {where}", "kinds": kinds}, where)


def _line_number(where: str) -> int:
    """The number of the line or entry in a problem's place; 0 without one."""
    match = re.search(r": (?:line|entry) (\d+)", where)
    return int(match[1]) if match else 0


def _check_line(data: Line, findings: Findings, path: str) -> None:
    """Add the problems of a line beside those of its messages."""
    problems_before = len(findings.problems)
    check_id(data.get("id", ""), findings, path)
    check_request_fields(data, findings, path)
    if "tool_choice" in data and not data.get("tools"):
        findings.add(
            "missing-key", f"{path}.tool_choice", "a choice among no tools", "tools", "add 'tools', or remove the key"
        )
    if len(findings.problems) == problems_before:
        check_expect(data, findings, path)
