"""What pages, terminals and writers do to a command, undone before a shell's parser reads it.

Each repair is a row of one table and leaves every line where it is. A character that the parser would take for
something of a shell's own is hidden behind one that no text has; `shown` gives it back.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'"})
#: ``<model>``, ``<your-model>``, ``<logits processor 1>``: to be filled in, and no redirection.
PLACEHOLDER = re.compile(r"(?<!<)<[A-Za-z][\w .:/|-]*(?:\.\.\.)?>")
_HIDES = " \t\"'\\`$(){}<>|&;#!*?~"
_MARKS = "".join(map(chr, range(0xE000, 0xE000 + len(_HIDES))))
_HIDDEN, _SHOWN = str.maketrans(_HIDES, _MARKS), str.maketrans(_MARKS, _HIDES)
#: Stands where a line ended before a page lost its newlines: ``\ --model x \ --port 8000``.
BROKEN_LINE = "\ue080"


def hidden(text: str) -> str:
    """The text with every character that means something to a shell hidden."""
    return text.translate(_HIDDEN)


def shown(text: str) -> str:
    """The text with its hidden characters given back."""
    return text.translate(_SHOWN).replace(BROKEN_LINE, "\\")


def plain_text(text: str) -> str:
    """A paste as it was before a terminal coloured it, or a web page made it pretty."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n")).translate(_QUOTES)
    # Spaces that do not break or have no width, and control characters.
    text = re.sub(r"[\u00a0\u2007\u202f]", " ", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\ue000-\ue0ff]", "", text)
    if re.search(r"&(?:lt|gt|amp|quot|#39);", text):
        text = html.unescape(text)
    return re.sub(r"(?<!\S)[\u2013\u2014](?=[A-Za-z])", "--", text)


def hide_match(match: re.Match[str]) -> str:
    """What a pattern found, hidden."""
    return hidden(match.group())


def _hide_json(match: re.Match[str]) -> str:
    """Hide JSON that nobody quoted, up to its last brace; variables in it stay."""
    text, depth, end = match["rest"], 0, 0
    for place, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            end = place + 1
            break
    if not end or text[end : end + 1].strip():
        return match.group()
    parts = re.split(r"(\$\{[^}]*\}|\$\w+)", text[:end])
    parts[::2] = map(hidden, parts[::2])  # between the variables
    return match["flag"] + "".join(parts) + text[end:]


def _exec_form(match: re.Match[str]) -> str:
    """A Dockerfile's list of words as a shell would be given them."""
    words = re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match["words"])
    return " ".join(hidden(re.sub(r"\\(.)", r"\1", word)) for word in words)


def _unescaped(match: re.Match[str]) -> str:
    """A string of Nix as the command in it."""
    return re.sub(r"\\(.)", r"\1", match[1])


def _made(text: str) -> str:
    """A Makefile with the values of its variables, as `make` hands its recipes to a shell."""
    values = {match[1]: match[2].strip() for match in _MAKE_VARIABLE.finditer(text)}
    for _ in range(4):  # one may name another
        text = re.sub(r"\$[({](\w+)[)}]", lambda match: values.get(match[1], match[0]), text)
    return re.sub(r"^\t[@-]+", "\t", text.replace("$$", "$"), flags=re.MULTILINE)


_RECIPE = re.compile(r"^[\w%./$()-]+[ \t]*:(?!=)[^\n]*\n\t", re.MULTILINE)
_MAKE_VARIABLE = re.compile(r"^(?:export[ \t]+)?(\w+)[ \t]*[?:]?:?=[ \t]*((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_WINDOWS = re.compile(r"\.exe\b|^PS [A-Z]:|\$env:|^@?echo off\b", re.IGNORECASE | re.MULTILINE)
_Text = str | Callable[[re.Match[str]], str]
#: What is repaired, and whether in Windows' shells alone. In this order.
_REPAIRS: tuple[tuple[str, _Text, bool], ...] = (
    # Windows: a quoted program, folders, and line ends of both its shells.
    (r"(?i)[\"'](?:[^\"'\n]*[\\/])?([\w.-]+\.exe)[\"']", r"\1", True),
    (r"(?<=[\w.:\"'])\\(?=[\w.])", "/", True),
    (r"(?<=\s)\.\\(?=[\w.])|^\.\\(?=[\w.])", "./", True),
    (r"%([A-Za-z_]\w*)%", r"${\1}", True),
    (r"[ \t][\^`][ \t]*(?=\n)", r" \\", True),
    # PowerShell's variables and lists, and a list as arguments.
    (r"^([ \t]*)\$(\w+)[ \t]*=[ \t]*@?(?=[(\"'\d])", r"\1\2=", True),
    (r"(?<=[\"'\w)]),[ \t]*(?=\n|[\"'$])", " ", True),
    (r"(?<=\s)@(\w+)\b(?!\()", r'"${\1[@]}"', True),
    (r"[ \t][\^`][ \t]*(?=\n[ \t]*-)", r" \\", False),
    (r"\\[ \t]+(?=\n)", r"\\", False),
    # Prompts of shells, and the numbers of a list.
    (
        r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[$>%&\u276f\u279c]|PS[^>\n]*>|\[?[\w.-]+@[\w.:~/ -]+\]?[$#]|\d+[.)])[ \t]+",
        "",
        False,
    ),
    # What other files say around a command: units of systemd, Dockerfiles, PowerShell, Windows' cmd.
    (r"^[ \t]*Exec(?:Start)?=[-@:+!]*[ \t]*", "", False),
    (r"^[ \t]*(?:serviceConfig\.)?ExecStart[ \t]+=[ \t]*\"((?:[^\"\\\n]|\\.)*)\"[ \t]*;?[ \t]*$", _unescaped, False),
    (r"\$\{(?:pkgs|lib|config)\.[\w.\"-]+\}", "/nix", False),
    (r"^[ \t]*Environment=(?=[\"']?[A-Za-z_]\w*=)", "export ", False),
    (r"^[ \t]*(?:ENTRYPOINT|CMD|RUN)[ \t]+\[(?P<words>[ \t]*\"[^\n]*)\][ \t]*$", _exec_form, False),
    (r"^[ \t]*ENV[ \t]+([A-Za-z_]\w*)[ \t]+(?=[^\s=])", r"export \1=", False),
    (r"^[ \t]*(?:ENV[ \t]+|set[ \t]+|\$env:)(?=[A-Za-z_]\w*[ \t]*=)", "export ", False),
    (r"^([ \t]*(?:export[ \t]+)?[A-Za-z_]\w*)[ \t]+=[ \t]*(?=[\"'\w./])", r"\1=", False),
    # What is to be filled in: `<model>`, and the braces of templates.
    (PLACEHOLDER.pattern, hide_match, False),
    (r"\{\{[^}\n]*\}\}|\$\{[^}\s:]*\s[^}\n]*\}", hide_match, False),
    # Apostrophes of prose, and JSON without quotes.
    (r"(?<=[A-Za-z])'(?=(?:t|s|re|ve|ll|d|m)\b(?!'))", hide_match, False),
    (r"(?P<flag>(?<!\S)--?[\w.-]+(?:=|[ \t]+))(?P<rest>\{\s*\"[^\n]*)", _hide_json, False),
    # A page lost its newlines: a comment is glued to the command below it.
    (r"^[ \t]*#[^\n]*?(?=[ \t](?:[\w.:/~-]*/)?[\w.-]+[ \t]+\\[ \t]+-)", "", False),
    (r"(?<=\s)\\[ \t]+(?=\S)", f"{BROKEN_LINE} ", False),
)


def mended(text: str) -> str:
    """The text with all repairs of the table."""
    windows = _WINDOWS.search(text) is not None
    if _RECIPE.search(text):
        text = _made(text)
    for pattern, instead, only_windows in _REPAIRS:
        if windows or not only_windows:
            text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return "\n".join(_over_comments(text.split("\n")))


def _over_comments(lines: list[str]) -> Iterator[str]:
    """Yield lines; a comment behind a line that goes on does too, and one at the end of such a line is gone."""
    goes_on = False
    for line in lines:
        bare = re.sub(rf"(?:\\[ \t]+|{BROKEN_LINE} )#[^'\"]*$", r"\\", line)
        if goes_on:
            bare = re.sub(r"[ \t]#[^'\"]*\\[ \t]*$", r" \\", bare)
        comment = bare.lstrip().startswith("#")
        yield "\\" if comment and goes_on else bare
        goes_on = bare.rstrip().endswith("\\") and (goes_on or not comment)
