"""Words as a shell cuts them out of a pasted text, with what web pages and writers leave of a command forgiven."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..core.errors import one_problem

#: ``<model>``, ``<your-model>``, ``<logits processor 1>``: to be filled in, and no redirection.
PLACEHOLDER = re.compile(r"<[A-Za-z][\w .:/|-]*(?:\.\.\.)?>")
_TICKS = re.compile(r"`[^`\n]+`")
_LINE_END = re.compile(r"\\(?:[ \t]*\n[ \t]*|[ \t]+|$)")
_GROUPS = {"(": ")", "{": "}"}
#: A line that goes on with flags, each with a value at most: the backslash before it was lost.
_QUOTED = r"(?:'[^']*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|\$?[^\s\-'\";|&<>][^\s;|&]*|-?\d\S*|<[A-Za-z][^>\n]*>)"
_FLAG = rf"--?[A-Za-z][\w.-]*(?:(?:=|[ \t]+){_QUOTED})?"
GOES_ON = re.compile(rf"\n[ \t]*(?={_FLAG}(?:[ \t]+{_FLAG})*[ \t]*\\?[ \t]*(?:\n|$|[>|;&]))")


def split(text: str, start: int = 0) -> tuple[list[str], int]:
    """Return the words of the command at ``start`` and the place behind it.

    The command ends at a newline, ``;``, ``|``, ``&``, a redirection, or the end. A backslash between spaces
    is a line end whose newline was lost. Raises DrafthouseError for a quote that is never closed; what it holds is
    not repeated, since it may be a key.
    """
    words: list[str] = []
    word: str | None = None
    place, end = start, len(text)
    while place < end:
        char = text[place]
        if char in "'\"" or text.startswith(("$'", '$"'), place):
            piece, place = _quoted(text, place)
            word = (word or "") + piece
            continue
        if char == "\\":
            skip = _LINE_END.match(text, place)
            if skip and (word is None or "\n" in skip.group() or skip.end() == end):
                place = skip.end()
                if word is not None:
                    words.append(word)
                    word = None
                continue
            word = (word or "") + text[place + 1 : place + 2]
            place += 2
            continue
        if (
            filled := PLACEHOLDER.match(text, place)
            or _group(text, place)
            or (word is None and _TICKS.match(text, place))
        ):
            word = (word or "") + filled.group()
            place = filled.end()
            continue
        if char in " \t" or char in "\n;|&<>`)" or (char == "#" and word is None):
            if word is not None:
                if not (char in "<>" and word.isdigit()):  # 2>&1
                    words.append(word)
                word = None
            if char not in " \t":
                break
            place += 1
            continue
        word = (word or "") + char
        place += 1
    return ([*words, word] if word is not None else words), place


def split_on(text: str, start: int = 0) -> tuple[list[str], int]:
    """Return what `split` does, with the lines behind that hold nothing but flags: their backslash was lost."""
    words, place = split(text, start)
    while goes_on := GOES_ON.match(text, place):
        more, place = split(text, goes_on.end())
        words += more
    return words, place


def _group(text: str, place: int) -> re.Match[str] | None:
    """Return ``$(…)`` or ``${…}`` at ``place``, which a shell would fill in."""
    if not text.startswith(("$(", "${"), place):
        return None
    closing = _GROUPS[text[place + 1]]
    return re.compile(rf"\$.[^\n{re.escape(closing)}]{{0,400}}{re.escape(closing)}").match(text, place)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return what stands in the quotes at ``start``, and the place behind them."""
    ansi = text[start] == "$"
    begin = start + ansi
    quote, place, piece = text[begin], begin + 1, ""
    while place < len(text) and text[place] != quote:
        if quote == '"' and text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "`", "\n"):
            piece += "" if text[place + 1] == "\n" else text[place + 1]
            place += 2
        elif ansi and quote == "'" and text[place] == "\\":
            piece += {"n": "\n", "t": "\t"}.get(text[place + 1 : place + 2], text[place + 1 : place + 2])
            place += 2
        else:
            piece += text[place]
            place += 1
    if place >= len(text):
        line = text.count("\n", 0, start) + 1
        column = start - text.rfind("\n", 0, start)
        raise one_problem(
            "unclosed-quote",
            f"an unclosed quote ({quote})",
            "a closing quote after the value",
            "close it, or paste the whole command",
            f"line {line}, column {column}",
        )
    return piece, place + 1


def mended(text: str) -> str:
    """Return a text whose commands go on over comments, and with the line ends of Windows' shells as a shell's own.

    Each line stays where it is.
    """
    if re.search(r"\.exe\b", text, re.IGNORECASE):
        text = re.sub(r"[\"'](?:[^\"'\n]*[\\/])?([\w.-]+\.exe)[\"']", r"\1", text, flags=re.IGNORECASE)
        text = re.sub(r"(?<=[\w.:\"'])\\(?=[\w.])", "/", text)
        text = re.sub(r"[ \t][\^`](?=[ \t]*\n)", r" \\", text)
    return "\n".join(_over_comments(re.sub(r"\\[ \t]+(?=\n)", r"\\", text).split("\n")))


def _over_comments(lines: list[str]) -> Iterator[str]:
    """Yield lines; a comment behind a line that goes on does too, and one at the end of such a line is gone."""
    goes_on = False
    for line in lines:
        bare = re.sub(r"\\[ \t]+#[^'\"]*$", r"\\", line)
        bare = re.sub(r"[ \t]#[^'\"]*\\[ \t]*$", r" \\", bare) if goes_on else bare
        comment = bare.lstrip().startswith("#")
        yield "\\" if comment and goes_on else bare
        goes_on = bare.rstrip().endswith("\\") and (goes_on or not comment)
