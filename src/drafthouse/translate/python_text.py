"""Interpret Python without running it: the values of its names, and its calls.

The text may be a web page: each statement that parses is read. An unknown value becomes ``${expression}``.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_STRINGS = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_STRINGS_AND_COMMENTS = re.compile(rf"{_STRINGS.pattern}|#[^\n]*", re.DOTALL)
_STRINGS_AND_BRACKETS = re.compile(rf"{_STRINGS.pattern}|[(\[{{)\]}}]", re.DOTALL)
#: A comment whose newline was lost; it ends before the next keyword argument: ``# on 2 GPUs`` in
#: ``LLM("a/b", # on 2 GPUs tensor_parallel_size=2)``.
_LOST_NEWLINE = re.compile(r"#\s[^\n\"']*?(?=\s\w+\s*=|\s*\)\s*$|\n|$)")
_MOST_LINES = 150  # lines of a statement
_MOST_PIECES = 20  # calls or lists in a line that is no statement
_MOST_VALUES = 5_000  # values in a nested value
_LONGEST = 100_000  # characters of a text, or items of a list
#: The first line of a statement of several lines: an assignment, a call, a definition, a piece of JSON.
_MAY_CONTINUE = re.compile(
    r"[ \t]*(?:[A-Za-z_][\w.]*(?:\[[^\]]*\])?[ \t]*(?:[:+]?=|:|\()"
    r"|(?:async[ \t]+)?def\b|(?:return|await|yield)\b|[\"'\[{@])"
)
_UNKNOWN = "\ue100"  # before and after the name of an unknown value inside a text


@dataclass
class Program:
    """The contents of a Python text."""

    names: dict[str, Any] = field(default_factory=dict)  # values by name
    calls: list[tuple[int, str, list[Any], dict[str, Any]]] = field(default_factory=list)
    """Line, name of the function without its module, positional values, keyword values."""
    objects: dict[str, int] = field(default_factory=dict)  # by name, the index of the call that made them
    environment: dict[str, str] = field(default_factory=dict)  # the environment variables that it sets
    texts: list[tuple[int, str]] = field(default_factory=list)  # its strings, each with its line
    lists: list[tuple[int, list[Any]]] = field(default_factory=list)  # its lists, each with its line


def read_python(text: str, calls: re.Pattern[str]) -> Program:
    """Read every statement of a text; ``calls`` matches the start of calls to find in lines that do not parse."""
    program = Program()
    for line, statement in _statements(text, calls):
        _Reader(program, line).visit(statement)
    return program


def plain_value(value: Any) -> Any:
    """A value with unknown parts as ``${name}``, and parts beyond the size limit as ``${value}`` or left out."""
    return _plain_part(value, [_MOST_VALUES])


def _plain_part(value: Any, room: list[int]) -> Any:
    """`plain_value` of a part; ``room[0]`` is the number of values that may still follow."""
    room[0] -= 1
    if room[0] < 0:
        return "${value}"
    if isinstance(value, str):
        return re.sub(rf"{_UNKNOWN}([^{_UNKNOWN}]*){_UNKNOWN}", r"${\1}", value)
    if isinstance(value, dict):
        return {str(_plain_part(key, room)): _plain_part(item, room) for key, item in value.items() if room[0] > 0}
    if isinstance(value, list):
        return [_plain_part(item, room) for item in value if room[0] > 0]
    return value


def _statements(text: str, calls: re.Pattern[str]) -> Iterator[tuple[int, ast.stmt]]:
    """Yield the statements of a text with their lines; a compound statement (`if`, `def`) without its body."""
    lines = re.sub(r"^[ \t]*(?:>>>|\.\.\.) ", "", text, flags=re.MULTILINE).split("\n")
    start = never_closed = 0
    while start < len(lines):
        end = _statement_end(lines, start, max(2, _MOST_LINES - 3 * never_closed))  # each failure lowers the limit
        if not end:
            never_closed += 1
            end = start + 1
        statements = _parsed(lines[start:end])
        has_hidden_call = calls.search(lines[start].lstrip(), 1) and not any(map(_has_call, statements))
        if not statements or has_hidden_call:
            statements = _pieces("\n".join(lines[start:end]), len(lines[start]), calls) or statements
        for statement in statements:
            yield start + 1, statement
        if not statements:
            end = start + 1
        start = end


def _statement_end(lines: list[str], start: int, most_lines: int) -> int:
    """The line after the statement at ``start``, whose brackets and strings are closed; 0 if they are still open."""
    if not _MAY_CONTINUE.match(lines[start]):
        return start + 1
    for end in range(start + 1, min(len(lines), start + most_lines) + 1):
        code = _STRINGS_AND_COMMENTS.sub("", "\n".join(lines[start:end]))
        is_open = '"""' in code or "'''" in code or code.rstrip().endswith("\\")
        if not is_open and sum(map(code.count, "([{")) <= sum(map(code.count, ")]}")):
            return end
    return 0


def _has_call(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _pieces(text: str, first_line: int, calls: re.Pattern[str]) -> list[ast.stmt]:
    """The calls in a line that is no statement; else its lists (``{"command": ["vllm", "serve"]}``)."""
    matches = [*calls.finditer(text, 0, first_line)] or [*re.finditer(r"\[(?=\s*[\"'])", text[:first_line])]
    statements: list[ast.stmt] = []
    for match in matches[:_MOST_PIECES]:
        statements += _parsed([_bracketed(text, match.start())])
    return statements


def _bracketed(text: str, start: int) -> str:
    """The text from ``start`` to the end of the first bracket after it."""
    depth = 0
    for match in _STRINGS_AND_BRACKETS.finditer(text, start):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth == 0 and match[0] in ")]}":
            return text[start : match.end()]
    return text[start:]


def _parsed(lines: list[str]) -> list[ast.stmt]:
    """The statements in the lines; none if they do not parse."""
    source = textwrap.dedent("\n".join(lines)).strip()
    for attempt in (source, f"{source} pass", _LOST_NEWLINE.sub(" ", source)):
        try:
            return ast.parse(attempt).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return []


class _Reader(ast.NodeVisitor):
    """Adds one statement to a program."""

    def __init__(self, program: Program, line: int) -> None:
        self.program = program
        self.line = line  # of the text, at which the statement starts
        self.names = program.names

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._set(target, value)
        calls = len(self.program.calls)
        self._inside(node.value)
        if isinstance(node.value, ast.Call) and self.program.calls[calls:]:
            self.program.objects[ast.unparse(node.targets[0])] = calls

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._set(node.target, self.value(node.value))
            self._inside(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and isinstance(node.op, (ast.Add, ast.BitOr)):
            self._add(node.target.id, self.value(node.value))
        self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        positional = [*node.args.posonlyargs, *node.args.args]
        pairs: list[tuple[ast.arg, ast.expr | None]] = []
        pairs += zip(reversed(positional), reversed(node.args.defaults), strict=False)
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for argument, default in pairs:
            if default is not None:
                self.names.setdefault(argument.arg, self.value(default))
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        name = getattr(function, "id", "")
        owner = None
        if isinstance(function, ast.Attribute):
            name = function.attr
            owner = function.value
        if isinstance(owner, ast.Name) and name in ("append", "extend", "update"):
            for argument in node.args:
                value = self.value(argument)
                if name == "append":
                    value = [plain_value(value)]
                self._add(owner.id, value)
            self._add(owner.id, self._keywords(node))
        else:
            arguments = list(map(self.value, node.args))
            if name == "add_argument" and arguments:
                self._set_option(str(arguments[-1]), node)
            self.program.calls.append((self.line, name, arguments, self._keywords(node)))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.program.texts.append((self.line, node.value))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.program.texts.append((self.line, self.value(node)))

    def visit_List(self, node: ast.List) -> None:
        self.program.lists.append((self.line, self.value(node)))
        self.generic_visit(node)

    def _inside(self, node: ast.expr) -> None:
        """Visit an assigned value; `_set` has recorded a list already, which may still grow."""
        if isinstance(node, ast.List):
            self.generic_visit(node)
        else:
            self.visit(node)

    def _set(self, target: ast.expr, value: Any) -> None:
        """Record an assignment to a name or attribute, to the parts of a tuple, or to a dict's key."""
        if isinstance(target, (ast.Name, ast.Attribute)):
            self.names[ast.unparse(target)] = value
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) in self.program.objects:
                self.program.calls[self.program.objects[ast.unparse(target.value)]][-1][target.attr] = value
            if isinstance(value, list):
                self.program.lists.append((self.line, value))
        elif isinstance(target, ast.Tuple) and isinstance(value, list):
            for name, part in zip(target.elts, value, strict=False):
                self._set(name, part)
        elif isinstance(target, ast.Subscript):
            holder = ast.unparse(target.value)
            key = str(plain_value(self.value(target.slice)))
            if holder == "os.environ":
                self.program.environment[key] = str(plain_value(value))
            elif isinstance(self.names.get(holder), dict):
                self.names[holder][key] = plain_value(value)

    def _set_option(self, flag: str, node: ast.Call) -> None:
        """Set the default of an option of argparse, whose value a program reads as ``args.NAME``."""
        settings = self._keywords(node)
        if "default" in settings:
            name = str(settings.get("dest", flag.lstrip("-").replace("-", "_")))
            self.names.setdefault(f"args.{name}", settings["default"])

    def _add(self, name: str, more: Any) -> None:
        """Extend the value of a name; a list or dict in place, since other names may have it too."""
        old = self.names.get(name)
        if isinstance(old, (list, str)) and len(old) > _LONGEST:
            return
        if isinstance(old, list):
            old.extend(more if isinstance(more, (list, tuple)) else [more])
        elif isinstance(old, dict) and isinstance(more, dict):
            old.update(more)
        elif isinstance(old, str) and isinstance(more, str):
            self.names[name] = old + more
            self.program.texts.append((self.line, old + more))

    # --- values -------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """The value of an expression; if it is unknown, a mark with the expression's name."""
        reader = getattr(self, f"_of_{type(node).__name__}", None)
        value = _NOT_KNOWN if reader is None else reader(node)
        if isinstance(value, (str, list)) and len(value) > _LONGEST:
            value = _NOT_KNOWN
        if value is _NOT_KNOWN:
            return f"{_UNKNOWN}{_name_of(node)}{_UNKNOWN}"
        return value

    def _of_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _of_Name(self, node: ast.Name) -> Any:
        return self.names.get(node.id, _NOT_KNOWN)

    def _of_Attribute(self, node: ast.Attribute) -> Any:
        return self.names.get(ast.unparse(node), _NOT_KNOWN)

    def _of_Subscript(self, node: ast.Subscript) -> Any:
        holder = self.value(node.value)
        if isinstance(holder, dict):
            return holder.get(str(self.value(node.slice)), _NOT_KNOWN)
        return _NOT_KNOWN

    def _of_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return "".join(map(_text_part, map(self.value, node.values)))

    def _of_FormattedValue(self, node: ast.FormattedValue) -> Any:
        return self.value(node.value)

    def _of_IfExp(self, node: ast.IfExp) -> Any:  # its condition is assumed to be true
        return self.value(node.body)

    def _of_BoolOp(self, node: ast.BoolOp) -> Any:  # os.environ.get("MODEL") or "a/b"
        return self.value(node.values[-1])

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        number = self.value(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(number, (int, float)):
            return -number
        return _NOT_KNOWN

    def _of_BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, (str, list)):
            return left + right
        return _NOT_KNOWN

    def _of_List(self, node: ast.List | ast.Tuple) -> list[Any]:
        items: list[Any] = []
        for item in node.elts:
            if not isinstance(item, ast.Starred):
                items.append(self.value(item))
                continue
            inner = self.value(item.value)
            items += inner if isinstance(inner, list) else [inner]
        return items

    _of_Tuple = _of_List

    def _of_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            if key is not None:
                table[str(plain_value(self.value(key)))] = value
            elif isinstance(value, dict):
                table.update(value)
        return table

    def _keywords(self, node: ast.Call) -> dict[str, Any]:
        """The keyword values of a call, with those of ``**options``."""
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg:
                keywords[keyword.arg] = value
            elif isinstance(value, dict):
                keywords.update(value)
            else:  # **options with an unknown value
                keywords[_name_of(keyword.value)] = value
        return keywords

    def _of_Call(self, node: ast.Call) -> Any:
        """The value of a call of a known function."""
        name = ast.unparse(node.func)
        arguments = list(map(self.value, node.args))
        if name == "dict":
            return self._keywords(node)
        if not arguments:
            return _NOT_KNOWN
        if name == "os.getenv" or name.endswith(".get"):
            if isinstance(node.func, ast.Attribute):
                table = self.value(node.func.value)
                if isinstance(table, dict) and str(arguments[0]) in table:
                    return table[str(arguments[0])]
            if len(arguments) > 1:
                return arguments[1]
            return f"{_UNKNOWN}{arguments[0]}{_UNKNOWN}"
        if name == "os.path.join":
            return posixpath.join(*map(_text_part, arguments))
        if len(arguments) > 1:
            return _NOT_KNOWN
        return self._of_call_with_one(name, node.func, arguments[0])

    @staticmethod
    def _of_call_with_one(name: str, function: ast.expr, argument: Any) -> Any:
        """The value of a call of a known function with one argument."""
        if name == "json.dumps":
            return json.dumps(plain_value(argument)) if isinstance(argument, (dict, list)) else argument
        if name in ("str", "int", "float", "Path", "list", "shlex.quote", "os.path.expanduser"):
            return argument
        if name == "shlex.split":
            return shlex.split(str(argument))
        if isinstance(function, ast.Attribute) and function.attr == "join" and isinstance(argument, list):
            return " ".join(map(_text_part, argument))
        return _NOT_KNOWN


#: Result of a reader of an expression whose value does not follow from the text.
_NOT_KNOWN = object()


def _text_part(value: Any) -> str:
    """A value as a part of a text; a dict or list counts as unknown."""
    return f"{_UNKNOWN}value{_UNKNOWN}" if isinstance(value, (dict, list)) else str(value)


def _name_of(node: ast.expr) -> str:
    """A shell variable's name for an expression."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", ast.unparse(node)).strip("_")[:40] or "value"
