"""Undo what web pages, terminals and authors did to a pasted command, so that a shell's parser can read it.

Each repair is a row of `_REPAIRS`; none moves text to another line. Characters that the parser must not interpret are
hidden: replaced by characters of Unicode's private use area, which `restored` replaces back.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'"})
#: ``<model>``, ``<your-model>``, ``<logits processor 1>``: to be filled in; a shell would take it for a redirection.
PLACEHOLDER = re.compile(r"(?<!<)<[A-Za-z][\w .:/|-]*(?:\.\.\.)?>")
_HIDES = " \t\"'\\`$(){}<>|&;#!*?~"
_MARKS = "".join(map(chr, range(0xE000, 0xE000 + len(_HIDES))))
_HIDDEN, _SHOWN = str.maketrans(_HIDES, _MARKS), str.maketrans(_MARKS, _HIDES)
#: Replaces a backslash that ended a line before a page lost its newlines: ``\ --model x \ --port 8000``.
BROKEN_LINE = "\ue080"


def hidden(text: str) -> str:
    """The text with all characters hidden that a shell interprets."""
    return text.translate(_HIDDEN)


def restored(text: str) -> str:
    """The text with its hidden characters restored: the inverse of `hidden`."""
    return text.translate(_SHOWN).replace(BROKEN_LINE, "\\")


def plain_text(text: str) -> str:
    """The paste without a terminal's colours and a web page's typography (quotes, dashes, HTML entities)."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n")).translate(_QUOTES)
    # Non-breaking spaces, then characters without width and control characters.
    text = re.sub(r"[\u00a0\u2007\u202f]", " ", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\ue000-\ue0ff]", "", text)
    if re.search(r"&(?:lt|gt|amp|quot|#39);", text):
        text = html.unescape(text)
    return re.sub(r"(?<!\S)[\u2013\u2014](?=[A-Za-z])", "--", text)


def hide_match(match: re.Match[str]) -> str:
    """The matched text, hidden."""
    return hidden(match.group())


def _hide_json(match: re.Match[str]) -> str:
    """Hide unquoted JSON up to its last brace, except the variables in it."""
    text = match["rest"]
    depth = 0
    end = 0
    for place, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if depth == 0:
            end = place + 1
            break
    if not end or text[end : end + 1].strip():
        return match.group()
    parts = re.split(r"(\$\{[^}]*\}|\$\w+)", text[:end])
    parts[::2] = map(hidden, parts[::2])  # the odd parts are variables
    return match["flag"] + "".join(parts) + text[end:]


def _shell_form(match: re.Match[str]) -> str:
    """A Dockerfile's JSON list of words as a shell command."""
    words = re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match["words"])
    return " ".join(hidden(re.sub(r"\\(.)", r"\1", word)) for word in words)


def _unescaped(match: re.Match[str]) -> str:
    """The content of a string of Nix, without its escapes."""
    return re.sub(r"\\(.)", r"\1", match[1])


def _doubled_quotes(match: re.Match[str]) -> str:
    """A text in double quotes whose own quotes were doubled for cmd."""
    return re.sub(r"(?<!^)\"\"(?!$)", r'\\"', match.group())


def _not_indented(match: re.Match[str]) -> str:
    """A here-document of an indented block of a page, without the indentation of its end in all its lines."""
    return re.sub(rf"^{match['indent']}", "", match.group(), flags=re.MULTILINE)


def _after_diff(match: re.Match[str]) -> str:
    """A diff of a review as the file after it: without the lines it removes; each leaves an empty line.

    A flag at the start of a line is no removed line, so a flag that speculates is not lost.
    """
    if not re.search(r"^\+", match[0], re.MULTILINE):
        return match[0]
    without_removed = re.sub(r"^-(?!-[A-Za-z])[^\n]*", "", match[0], flags=re.MULTILINE)
    return re.sub(r"^\+", " ", without_removed, flags=re.MULTILINE)


def _nix_list(match: re.Match[str]) -> str:
    """A list of a command's words in Nix as a line of shell: a unit's, a container's, or llama.cpp's module's."""
    strings = [re.sub(r"\\(.)", r"\1", text) for text in re.findall(r"\"((?:[^\"\\]|\\.)*)\"", match["list"])]
    words, end = " ".join(strings), "\n" * match[0].count("\n")
    if match["key"] == "ExecStart":
        return words + end
    name, start = _NIX_STARTS[match["key"]]
    values = re.findall(rf"\b{name}[ \t]*=[ \t]*\"([^\"\n]+)\"", match.string[: match.start()])
    if not values:
        return match[0]
    return " ".join([start, values[-1], *map(hidden, strings)]) + end


def _batch_set(match: re.Match[str]) -> str:
    """A `set` of cmd, alone or behind an `if`, as an assignment of a shell; its value is the rest of the line."""
    name = match["quoted"] or match["plain"]
    value = match["text"] or match["rest"] or ""
    escaped = value.replace('"', '\\"')
    if match["unset"]:
        return f'export {name}="${{{name}:-{escaped}}}"'
    setting = f'export {name}="{escaped}"'
    if match["left"]:
        return f"[ {match['left']} = {match['right']} ] && {setting}"
    return setting


def _expanded_makefile(text: str) -> str:
    """A Makefile with its variables filled in, as `make` passes its recipes to a shell."""
    values = {match[1]: match[2].strip() for match in _MAKE_VARIABLE.finditer(text)}
    for _ in range(4):  # a variable may contain other variables
        text = re.sub(r"\$[({](\w+)[)}]", lambda match: values.get(match[1], match[0]), text)
    return re.sub(r"^\t[@-]+", "\t", text.replace("$$", "$"), flags=re.MULTILINE)


_RECIPE = re.compile(r"^[\w%./$()-]+[ \t]*:(?!=)[^\n]*\n\t", re.MULTILINE)
_MAKE_VARIABLE = re.compile(r"^(?:export[ \t]+)?(\w+)[ \t]*[?:]?:?=[ \t]*((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
WINDOWS = re.compile(r"\.exe\b|^PS [A-Z]:|\$env:|^@?echo off\b|\{`\"", re.IGNORECASE | re.MULTILINE)
_Replacement = str | Callable[[re.Match[str]], str]
#: Lists of a Nix module: the setting above it that goes before its words, and the command before that.
_NIX_STARTS = {"cmd": ("image", "docker run"), "extraFlags": ("model", "llama-server -m")}
_NIX = re.compile(
    r"\bpkgs\.[\w-]+|\blib\.(?:getExe|optional|mk)|^\s*\{[^{}\n]*\b(?:pkgs|lib)\b[^{}\n]*\}:", re.MULTILINE
)
#: Repairs in their order: pattern, replacement, and whether only in a paste from a Windows shell.
_REPAIRS: tuple[tuple[str, _Replacement, bool], ...] = (
    (r"^(?P<fence>[ \t]*`{3,4})diff[ \t]*\n(?s:.{0,20000}?)^(?P=fence)", _after_diff, False),
    # Windows: quoted programs, backslashes in paths, variables of cmd, line continuations of both shells.
    (r"(?i)[\"'](?:[^\"'\n]*[\\/])?([\w.-]+\.exe)[\"']", r"\1", True),
    (r"(?<=[\w.:\"'%])\\(?=[\w.%])", "/", True),
    (r"(?<=\s)\.\\(?=[\w.])|^\.\\(?=[\w.])", "./", True),
    (r"\"\{(?:\"\"|[^\"\n])*\}\"", _doubled_quotes, True),
    (r"[%!]([A-Za-z_]\w*)[%!]", r"${\1}", True),
    (r"^([ \t]*\$\w+[ \t]*=[ \t]*)Join-Path[^\n]*?([\w.-]+\.exe)['\"]?\)*[ \t]*$", r'\1"\2"', True),
    (r"[ \t][\^`][ \t]*(?=\n)", r" \\", True),
    (r"(?i)^[ \t]*start[ \t]+(?:\"[^\"\n]*\"[ \t]+)?(?:/\w+[ \t]+)*(?=\S+\.exe\b)", "", True),
    (
        r"(?i)^[ \t]*(?:if[ \t]+(?:not[ \t]+defined[ \t]+(?P<unset>\w+)|(?P<left>\"[^\"\n]*\")[ \t]*==[ \t]*"
        r"(?P<right>\"[^\"\n]*\"))[ \t]+)?"
        r"set[ \t]+(?:\"(?P<quoted>\w+)=(?P<text>[^\n]*)\"|(?P<plain>\w+)=(?P<rest>[^\n]*?))[ \t]*$",
        _batch_set,
        True,
    ),
    (
        r"^[ \t]*(?:\$\w+[ \t]*=[ \t]*)?Start-Process[ \t]+(?:-FilePath[ \t]+)?(\S+)[ \t]+-ArgumentList[ \t]+",
        r"\1 ",
        True,
    ),
    (r"(?<=\.exe)[ \t]+\"(-[^\"\n]*[ \t][^\"\n]*)\"", r" \1", True),
    (r"[ \t]-(?:NoNewWindow|PassThru|Wait|(?:RedirectStandard\w+|WindowStyle|WorkingDirectory)[ \t]+\S+)", "", True),
    # PowerShell: parameters, a condition on one line (taken as true), lists without brackets, variables, lists, and
    # lists as arguments.
    (r"^[ \t]*(?:param[ \t]*\([ \t]*)?\[[\w.]+(?:\[\])?\][ \t]*(?=\$\w+[ \t]*=|\$\w+\.Add)", "", True),
    (r"^([ \t]*\$\w+)\.Add(?:Range)?\((?:@\()?([^\n]*?)\)+[^()\n]*$", r"\1 += @(\2)", True),
    (r"(?<==)[ \t]*\[[\w.\[\]]+\](?:::new\(\))?", " ", True),
    (r",[ \t]*\[[\w.]+\][ \t]*\$(\w+)[ \t]*=[ \t]*", r"; \1=", True),
    (r"^[ \t]*if[ \t]*\([^{}\n]*\)[ \t]*\{[ \t]*(\$[^{}\n]*?)[ \t;]*\}[^\n]*$", r"\1", True),
    (r"^([ \t]*\$\w+[ \t]*\+?=)[ \t]*((?:[\"'$][^,()\n]*,[ \t]*)+[^,()\s][^,()\n]*)$", r"\1 (\2)", True),
    (r"`(?=\")", r"\\", True),
    (r"^([ \t]*)\$(\w+)[ \t]*(\+?=)[ \t]*@?(?=[(\"'\d])", r"\1\2\3", True),
    (r"(?<=[\"'\w)]),(?![ \t]*\"[\w.]+\"[ \t]*:)(?:[ \t]*(?=\n|[\"'$#])|[ \t]+(?=\d))", " ", True),
    (r"(?<=\s)@(\w+)\b(?!\()", r'"${\1[@]}"', True),
    (r"[ \t][\^`][ \t]*(?=\n[ \t]*-)", r" \\", False),
    (r"\\[ \t]+(?=\n)", r"\\", False),
    (r"\\\\(?=\n[ \t]*-)", r"\\", False),  # escaped for a here-document
    (r"\\`", "`", False),  # escaped for a page
    # Shell prompts, and the numbers of a list.
    (
        r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[$>%&\u276f\u279c]|PS[^>\n]*>|\[?[\w.-]+@[\w.:~/ -]+\]?[$#]|\d+[.)])[ \t]+",
        "",
        False,
    ),
    (
        r"^(?P<indent>[ ]+)(?=\S)[^\n]*<<[ \t]*['\"]?(?P<end>\w+)['\"]?[^\n]*\n"
        r"(?:(?P=indent)[^\n]*\n|[ \t]*\n){0,400}?(?P=indent)(?P=end)[ \t]*$",
        _not_indented,
        False,
    ),
    # A log that shows a command in brackets, its words without quotes or commas.
    (r"^[^\n]{0,400}?\bcommand:?[ \t]\[(?=[\w./-]+[ \t])([^\n]*)\][ \t]*$", r"\1", False),
    # Keywords before a command: systemd units, Nix, Dockerfiles, PowerShell, cmd.
    (r"^[ \t]*Exec(?:Start)?=[-@:+!]*[ \t]*", "", False),
    (r"^[ \t]*Environment=(?=[\"']?[A-Za-z_]\w*=)", "export ", False),
    (r"^[ \t]*(?:ENTRYPOINT|CMD|RUN)[ \t]+\[(?P<words>[ \t]*\"[^\n]*)\][ \t]*$", _shell_form, False),
    (r"^[ \t]*ENV[ \t]+([A-Za-z_]\w*)[ \t]+(?=[^\s=])", r"export \1=", False),
    (r"^[ \t]*(?:ENV[ \t]+|set[ \t]+|\$env:)(?=[A-Za-z_]\w*[ \t]*=)", "export ", False),
    (r"^([ \t]*(?:export[ \t]+)?[A-Za-z_]\w*)[ \t]+=[ \t]*(?=[\"'\w./])", r"\1=", False),
    # A remark behind a number.
    (r"((?<!\S)--?[\w-]+[ \t=]\d+)[ \t]?\([A-Za-z][^()\n]*\)", r"\1", False),
    # Placeholders: `<model>`, and the braces of templates.
    (PLACEHOLDER.pattern, hide_match, False),
    (r"\{\{[^}\n]*\}\}|\$\{[^}\s:]*\s[^}\n]*\}", hide_match, False),
    # Apostrophes of prose, and JSON without quotes.
    (r"(?<=[A-Za-z])'(?=(?:t|s|re|ve|ll|d|m)\b(?!'))", hide_match, False),
    (r"(?P<flag>(?<!\S)--?[\w.-]+(?:=|[ \t]+))(?P<rest>\{\s*\"[^\n]*)", _hide_json, False),
    # A page without its newlines: a comment before the command, then the ends of lines.
    (r"^[ \t]*#[^\n]*?(?=[ \t](?:[\w.:/~-]*/)?[\w.-]+[ \t]+\\[ \t]+-)", "", False),
    (r"(?<=\s)\\[ \t]+(?=\S)", f"{BROKEN_LINE} ", False),
)


#: Repairs of a file of Nix: names of programs, optional parts (taken as present), variables, the strings of commands.
_NIX_REPAIRS: tuple[tuple[str, _Replacement], ...] = (
    (r"\$\{lib\.getExe'[^\"{}]*\"([\w-]+)\"\}", r"\1"),
    (r"\$\{lib\.optionalString[ \t]+(?:\([^()]*\)|[\w.]+)[ \t]+\"((?:[^\"\\]|\\.)*)\"\}", r"\1"),
    (
        r"^[ \t]*(?:serviceConfig\.)?(?P<key>ExecStart|cmd|extraFlags)[ \t]*=[^;\[\"]*(?:\" ?\")?[^;\[\"]*\["
        r"(?P<list>(?:[^\]\[\"]|\"(?:[^\"\\]|\\.)*\")*)\][^;\n]*;",
        _nix_list,
    ),
    (r"(?<=getExe)'", ""),
    (r"\$\{(?:pkgs|lib|config)\.[\w.\"-]+\}", "/nix"),
    (r"''(?=\$\{)", ""),
    (r"\$\{[\w.-]+\}", lambda match: re.sub(r"[.-]", "_", match[0])),
    (
        r"^[ \t]*(?:serviceConfig\.)?(?:ExecStart|cmd|command|script)[ \t]*=[ \t]*"
        r"\"((?:[^\"\\\n]|\\.)*)\"[ \t]*;?[ \t]*$",
        _unescaped,
    ),
    (r"(?s)^[ \t]*(?:serviceConfig\.)?(?:ExecStart|cmd|command|script)[ \t]*=[ \t]*''(.*?)''[ \t]*;", r"\1"),
)


def repair(text: str) -> str:
    """The text after all repairs, for a shell's parser."""
    windows = WINDOWS.search(text) is not None
    if _RECIPE.search(text):
        text = _expanded_makefile(text)
    if _NIX.search(text):
        for pattern, replacement in _NIX_REPAIRS:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    for pattern, replacement, only_windows in _REPAIRS:
        if windows or not only_windows:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return "\n".join(_lines_without_comments(text.split("\n")))


def _lines_without_comments(lines: list[str]) -> Iterator[str]:
    r"""Yield lines; after a line that ends with \ a comment line becomes \, and a comment before the \ is removed."""
    continues = False
    for line in lines:
        without_comment = re.sub(rf"(?:\\[ \t]+|{BROKEN_LINE} )#[^'\"]*$", r"\\", line)
        if continues:
            without_comment = re.sub(r"[ \t]#[^'\"]*\\[ \t]*$", r" \\", without_comment)
        is_comment = without_comment.lstrip().startswith("#")
        yield "\\" if is_comment and continues else without_comment
        continues = without_comment.rstrip().endswith("\\") and (continues or not is_comment)
