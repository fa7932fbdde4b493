"""Interpret a shell script without running it: its commands in order, with variables expanded as far as known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from ..core.secret_shapes import is_secret_name
from ..engines.pasted import json_value
from .expansions import Value, appended, as_text, bounded, command_output, expanded, parameter, plain_call
from .repairs import restored

_PARSER = Parser(Language(tree_sitter_bash.language()))
_MOST_CHARACTERS = 5_000_000  # of all expanded variables together
_DEEPEST = 8  # levels of scripts in words of scripts
_MOST_TURNS = 200  # iterations of a loop
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "=": fnmatch.fnmatchcase,
    "==": fnmatch.fnmatchcase,
    "!=": lambda left, right: not fnmatch.fnmatchcase(left, right),
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: _number(left) > _number(right),
    "-ge": lambda left, right: _number(left) >= _number(right),
    "-lt": lambda left, right: _number(left) < _number(right),
    "-le": lambda left, right: _number(left) <= _number(right),
}
#: Methods of `Shell` by the type of node that they read; for other types the nodes inside are read.
_READERS = {
    "command": "_command", "variable_assignment": "_assign", "declaration_command": "_declare",
    "redirected_statement": "_redirected", "list": "_list", "test_command": "_test", "negated_command": "_negated",
    "if_statement": "_if", "for_statement": "_for", "case_statement": "_case", "while_statement": "_inside",
    "subshell": "_inside", "function_definition": "_define",
}  # fmt: skip


def _number(text: str) -> int:
    """An integer as `test` reads it; 0 for any other text."""
    return int(text) if re.fullmatch(r"-?\d{1,18}", text.strip()) else 0


def parsed(text: str) -> Node:
    """The root of a text's syntax tree."""
    return _PARSER.parse(text.encode("utf-8", "replace")).root_node


class _Continue(Exception):
    """Raised by `continue`: the rest of a loop's body is skipped in this iteration."""


@dataclass
class Run:
    """A command of the script."""

    line: int  # of the paste
    words: list[str]  # expanded; the first is the program
    assignments: dict[str, str] = field(default_factory=dict)  # set for this command only: `A=b program`
    exported: dict[str, str] = field(default_factory=dict)  # values of exported variables that no word contains
    in_backticks: bool = False  # True: perhaps only quoted in a sentence


@dataclass
class Shell:
    """A shell's state while it walks the script's syntax tree."""

    values: dict[str, Value] = field(default_factory=dict)  # by variable
    exported: list[str] = field(default_factory=list)  # variables; "*" after `set -a`, which exports all new ones
    files: dict[str, str] = field(default_factory=dict)  # texts that the script has written, by file name
    functions: dict[str, Node] = field(default_factory=dict)  # bodies by name
    runs: list[Run] = field(default_factory=list)  # the commands so far
    heredocs: list[tuple[int, str]] = field(default_factory=list)  # here-documents: line and text
    guessed: list[str] = field(default_factory=list)  # unknown conditions that are assumed to be true
    used: set[str] = field(default_factory=set)  # variables that occur in words
    depth: int = 0  # levels of scripts around this one
    budget: list[int] = field(default_factory=lambda: [_MOST_CHARACTERS])
    """Characters that variables may still expand to, as the only item: inner shells share the list."""
    _line: int = 1  # of the paste, at which the text starts that is read
    _guesses: int = 0  # unknown conditions around the current node
    _over: bool = False  # after `exit` or `exec`
    _called: set[str] = field(default_factory=set)  # functions

    def read(self, text: str, line: int = 1) -> None:
        """Read a script; ``line`` is the number of its first line in the paste."""
        if self.depth >= _DEEPEST:
            return
        outer_line, self._line = self._line, line
        self.depth += 1
        with suppress(_Continue):
            self._walk(parsed(text))
        self.depth -= 1
        self._line = outer_line

    def finish(self) -> None:
        """Read the bodies of functions that the script never calls."""
        for name, body in self.functions.items():
            if name not in self._called:
                self._inside(body)

    def text_value(self, name: str) -> str | None:
        """A variable's value as one text; None if the script does not set it, or it may be a secret."""
        value = self._value(name)
        return None if value is None else as_text(value)

    # --- statements -----------------------------------------------------------------------------------

    def _walk(self, node: Node) -> bool | None:
        """Result of a node that is a condition, after reading it; None if it is unknown or no condition."""
        if self._over:
            return None
        reader = _READERS.get(node.type)
        if reader:
            holds = getattr(self, reader)(node)
            if isinstance(holds, bool):
                return holds
        elif node.type not in ("comment", "heredoc_body"):
            for child in node.named_children:
                self._walk(child)
        return None

    def _define(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[_text(name)] = body

    def _inside(self, node: Node) -> None:
        """Read nodes that may not be run; their assignments are dropped afterwards."""
        values_before = dict(self.values)
        self._guesses += 1
        for child in node.named_children:
            self._walk(child)
        self._guesses -= 1
        self.values = values_before

    def _list(self, node: Node) -> bool | None:
        """Read ``A && B`` or ``A || B``; B is skipped if A decides, and is a guess if A is unknown (None)."""
        left, *rest = [child for child in node.children if child.type != "comment"]
        holds = self._walk(left)
        if not rest:
            return holds
        operator = _text(rest[0])
        if (operator, holds) in (("&&", False), ("||", True)):
            return holds
        is_guess = holds is None and bool(operator)
        self._guesses += is_guess
        for child in rest[1:]:
            holds = self._walk(child)
        self._guesses -= is_guess
        return holds

    def _if(self, node: Node) -> None:
        """Read the branch that is taken. If that is unknown, read all; only the first one's assignments count."""
        conditions = [child for child in node.children_by_field_name("condition") if child.is_named]
        holds: bool | None = None
        for condition in conditions:
            holds = self._walk(condition)
        values_before = dict(self.values)
        other_branches = _children(node, "elif_clause", "else_clause")
        if holds is not False:
            self._guesses += holds is None
            for child in node.named_children:
                if child not in conditions and child not in other_branches:
                    self._walk(child)
            self._guesses -= holds is None
            if holds is None and self.values != values_before:
                self.guessed.append(restored(" ".join(map(_text, conditions))))
        if holds is True:
            return
        for branch in other_branches:
            if holds is None:
                self._inside(branch)
            else:
                self._walk(branch)

    def _for(self, node: Node) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return
        name = _text(variable)
        value_before = self.values.get(name)
        distinct_runs: list[Run] = []
        values = self._words(node.children_by_field_name("value"))
        start = len(self.runs)
        for value in values[:_MOST_TURNS]:
            self.values[name] = value
            with suppress(_Continue):
                self._walk(body)
        for run in self.runs[start:]:  # a command without the loop's variable is the same in each turn
            if run not in distinct_runs:
                distinct_runs.append(run)
        self.runs[start:] = distinct_runs
        self.values.pop(name, None)
        if value_before is not None:
            self.values[name] = value_before

    def _case(self, node: Node) -> None:
        """Read the branch that is taken. If that is unknown, read all, and drop their assignments."""
        value = self._known_text(node.child_by_field_name("value"))
        if value is None:
            self._inside(node)
            return
        for item in _children(node, "case_item"):
            patterns = item.children_by_field_name("value")
            if any(fnmatch.fnmatchcase(value, self._joined(pattern)) for pattern in patterns):
                for child in item.named_children:
                    if child not in patterns:
                        self._walk(child)
                return

    def _negated(self, node: Node) -> bool | None:
        if not node.named_children:
            return None
        holds = self._walk(node.named_children[0])
        return None if holds is None else not holds

    def _test(self, node: Node) -> bool | None:
        """The result of ``[ ... ]`` with texts that are all known; None if it is unknown."""
        if not node.named_children:
            return None
        inner = node.named_children[0]
        words = re.sub(r"^\[+|\]+$", "", _text(node).strip()).split(None, 1)
        parts = [child for child in inner.children if child.type not in ("(", ")")]
        if inner.type == "unary_expression" and words and words[0] in ("-n", "-z") and len(parts) == 2:
            value = self._known_text(parts[1])
            return None if value is None else bool(value) == (words[0] == "-n")
        if inner.type == "binary_expression" and len(parts) == 3 and _text(parts[1]) in _TESTS:
            left, right = self._known_text(parts[0]), self._known_text(parts[2])
            if left is not None and right is not None:
                return _TESTS[_text(parts[1])](left, right)
        return None

    def _known_text(self, node: Node | None) -> str | None:
        """The expanded text of a node; None without a node, or if it contains a variable that is not set."""
        if node is None:
            return None
        text = " ".join(self._fields(node))
        return None if "$" in text or "`" in text else text

    # --- variables ------------------------------------------------------------------------------------

    def _assign(self, node: Node) -> str:
        """Name of the variable that the assignment sets; "" if it sets none."""
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return ""
        name = re.sub(r"\[.*", "", _text(target))  # an array's item sets the whole array
        appends = any(child.type == "+=" for child in node.children)
        new = self._assigned(value)
        old = self.values.get(name)
        if appends and old is not None:
            new = appended(old, new)
        self.values[name] = bounded(name, new)
        if "*" in self.exported and name not in self.exported:
            self.exported.append(name)
        return name

    def _assigned(self, value: Node | None) -> Value:
        """The value of an assignment: the words of an array, or one text."""
        if value is None:
            return ""
        if value.type != "array":
            return self._joined(value)
        return self._words(item for item in value.named_children if item.type != "comment")

    def _declare(self, node: Node) -> None:
        words = _text(node).split()
        exports = words[0] == "export" or (words[0] in ("declare", "typeset") and "-x" in words)
        for child in node.named_children:
            name = ""
            if child.type == "variable_assignment":
                name = self._assign(child)
            elif child.type == "variable_name":
                name = _text(child)
            elif child.type in ("string", "raw_string"):
                name = self._assign_quoted(child)
            if exports and name and name not in self.exported:
                self.exported.append(name)

    def _assign_quoted(self, node: Node) -> str:
        """Name of the variable that a quoted assignment (``export "A=b c"``) sets; "" if it sets none."""
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", self._joined(node), re.DOTALL)
        if match is None:
            return ""
        self.values[match[1]] = bounded(match[1], match[2])
        return match[1]

    def _value(self, name: str) -> Value | None:
        if name not in self.values or is_secret_name(name) or self.budget[0] < 0:
            return None
        self.used.add(name)
        value = self.values[name]
        self.budget[0] -= len(value)
        if isinstance(value, list):
            self.budget[0] -= sum(map(len, value))
        return value

    # --- commands -------------------------------------------------------------------------------------

    def _command(self, node: Node) -> None:
        """Record a command's run, or read the function that it calls; apply what it does to variables."""
        used_before = set(self.used)
        assignments = self._assigned_before(node)
        parts = [*node.children_by_field_name("name"), *node.children_by_field_name("argument")]
        words = self._words(parts)
        name = words[0] if words else ""
        if name == "continue" and not self._guesses:
            raise _Continue
        if name == "eval" and len(parts) > 1:
            self.read(" ".join(map(self._joined, parts[1:])), self._line_of(node))
            return
        if name in self.functions and name not in self._called:
            self._call(name, words[1:])
            return
        self._change_variables(name, words[1:], self._line_of(node))
        if name in ("echo", "printf"):  # a variable that is only printed may still be meant for the server
            self.used = used_before
        if words:
            environment = self._exported_values()
            self.runs.append(Run(self._line_of(parts[0]), words, assignments, environment, self._in_backticks(node)))
        for part in parts:
            self._substitutions(part)
        # After `exit` or `exec` a page goes on, but a script (it has a name, `$0`) has ended.
        self._over = not self._guesses and "0" in self.values and (name == "exit" or words[:1] == ["exec"] != words)

    def _assigned_before(self, node: Node) -> dict[str, str]:
        """The variables set for one command only (``NAME=value program``)."""
        assignments: dict[str, str] = {}
        for child in node.named_children:
            target = child.child_by_field_name("name")
            if child.type != "variable_assignment" or target is None:
                continue
            value = child.child_by_field_name("value")
            assignments[_text(target)] = "" if value is None else restored(self._joined(value))
        return assignments

    def _call(self, name: str, arguments: list[str]) -> None:
        """Read a function's body with its arguments as ``$1``, ``$2``, ..., ``$@``; then restore the caller's."""
        self._called.add(name)
        outer = {key: value for key, value in self.values.items() if key.isdigit() or key == "@"}
        parameters: dict[str, Value] = {"@": arguments}
        for number, argument in enumerate(arguments, 1):
            parameters[str(number)] = argument
        self.values |= parameters
        self._walk(self.functions[name])
        for key in parameters:
            self.values.pop(key, None)
        self.values |= outer

    def _change_variables(self, name: str, arguments: list[str], line: int) -> None:
        """Apply `source`, `set -a` and `unset` to the variables."""
        if name in ("source", ".") and arguments:
            text = self.files.get(arguments[0].removeprefix("./"))
            start = len(self.runs)
            if text:
                self.read(text, line)
            del self.runs[start:]
        elif name == "set" and arguments[:1] in (["-a"], ["-o"]) and arguments[-1] in ("-a", "allexport"):
            self.exported.append("*")
        elif name == "unset":
            for variable in arguments:
                self.values.pop(variable, None)

    def _exported_values(self) -> dict[str, str]:
        """The exported variables that no word contains: only the started program reads them."""
        exported: dict[str, str] = {}
        for name in self.exported:
            if name in self.values and name not in self.used:
                exported[name] = restored(as_text(self.values[name]))
        return exported

    def _substitutions(self, node: Node) -> None:
        """Read the commands in backticks, which may be the quotes of a sentence."""
        if node.type == "command_substitution" and _text(node).startswith("`"):
            for child in node.named_children:
                self._walk(child)
            return
        for child in node.named_children:
            self._substitutions(child)

    @staticmethod
    def _in_backticks(node: Node) -> bool:
        parent = node.parent
        while parent is not None and parent.type in ("pipeline", "list", "redirected_statement"):
            parent = parent.parent
        return parent is not None and parent.type == "command_substitution"

    def _line_of(self, node: Node) -> int:
        return self._line + node.start_point.row

    def _redirected(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        documents = _children(node, "heredoc_redirect")
        target, appends = self._destination(node.children_by_field_name("redirect"))
        start = len(self.runs)
        holds = None if body is None else self._walk(body)
        written = self.runs[start:]
        target, appends = _tee_target(written, target, appends=appends)
        for redirect in documents:
            self._heredoc(redirect, target, appends=appends)
            for pipeline in _children(redirect, "pipeline"):  # cat <<EOF | tee file
                self._walk(pipeline)
        if not documents and written and target:
            self._write_printed(written[-1].words, _file_name(target), appends=appends)
        return holds

    def _destination(self, redirects: list[Node]) -> tuple[str, bool]:
        """The first file that redirections write to ("" for none), and True if one of them appends."""
        target, appends = "", False
        for redirect in redirects:
            redirects_inside = [redirect]
            if redirect.type == "heredoc_redirect":
                redirects_inside += redirect.children_by_field_name("redirect")
            for part in redirects_inside:
                destination = part.child_by_field_name("destination")
                if part.type == "file_redirect" and destination is not None and _text(part)[:1] == ">":
                    target = target or self._joined(destination)
                    appends = appends or _text(part).startswith(">>")
        return target, appends

    def _write_printed(self, words: list[str], file: str, *, appends: bool) -> None:
        """Write the output of `echo` or `printf` to a file; other programs' output is unknown."""
        if words[0] in ("echo", "printf"):
            text = command_output(words) or " ".join(words[1:])
            before = self.files.get(file, "") * appends
            self.files[file] = f"{before}{restored(text)}\n"

    def _heredoc(self, redirect: Node, target: str, *, appends: bool) -> None:
        """Keep a here-document, and write it to the file ``target`` if that is not ""."""
        bodies, starts = _children(redirect, "heredoc_body"), _children(redirect, "heredoc_start")
        if not bodies or not starts:
            return
        text = _text(bodies[0])
        if not re.search(r"['\"\\]", _text(starts[0])):
            text = expanded(text, self.text_value)
        if _text(redirect).startswith("<<-"):
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if target not in ("", "/dev/null"):
            file, content = _file_name(target), restored(text)
            if appends:
                content = self.files.get(file, "") + content
            self.files[file] = content
        self.heredocs.append((self._line_of(bodies[0]), text))

    # --- words ----------------------------------------------------------------------------------------

    def _joined(self, node: Node) -> str:
        return " ".join(self._fields(node, splits=False))

    def _words(self, nodes: Iterable[Node]) -> list[str]:
        """The expanded words of nodes, in order."""
        words: list[str] = []
        for node in nodes:
            words += self._fields(node)
        return words

    def _fields(self, node: Node, *, splits: bool = True) -> list[str]:
        """The expanded words of a node; with ``splits`` an unquoted variable may become several words."""
        kind, text = node.type, _text(node)
        if kind == "raw_string":
            return [text[1:-1]]
        if kind == "ansi_c_string":
            return [re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), text[2:-1])]
        if kind in ("string", "translated_string"):
            return self._quoted(node)
        if kind in ("simple_expansion", "expansion"):
            value = parameter(self._with_outputs(node), self._value)
            if isinstance(value, list):
                return value
            return split_value(value) if splits and value != text else [value]
        if kind == "command_substitution":
            return [self._output(node)]
        if kind == "command_name" and node.named_children:
            return self._fields(node.named_children[0], splits=splits)
        if kind == "concatenation":
            words = [""]
            for piece in self._pieces(node, splits=splits):
                if piece:
                    words = [*words[:-1], words[-1] + piece[0], *piece[1:]]
            return words
        return [re.sub(r"\\(.|\n)", lambda match: match[1].strip("\n"), text)]

    def _pieces(self, node: Node, *, splits: bool) -> Iterator[list[str]]:
        """Yield the words of each part of a node, and the text between the parts."""
        for gap, child in _with_gaps(node):
            if gap:
                yield [gap]
            if child is not None:
                yield self._fields(child, splits=splits)

    def _quoted(self, node: Node) -> list[str]:
        """The word of a string in double quotes; the items of an array for ``"${A[@]}"`` and ``"$@"``."""
        if node.type == "translated_string" and node.named_children:
            node = node.named_children[-1]
        if len(node.named_children) == 1 and re.fullmatch(r"\"\$(?:\{\w+\[@\]\}|@)\"", _text(node)):
            return self._fields(node.named_children[0], splits=False)
        text = ""
        for gap, child in _with_gaps(node):
            text += gap
            if child is None or child.type == '"':
                continue
            if child.type == "string_content":
                text += re.sub(r"\\([\"$`\\\n])", lambda match: match[1].strip("\n"), _text(child))
            else:
                text += self._joined(child)
        return [text]

    def _with_outputs(self, node: Node) -> str:
        """The text of a node with the output of its command substitutions: ``${SPEC:-$(printf ...)}``."""
        if node.type == "command_substitution":
            return self._output(node)
        text = ""
        for gap, child in _with_gaps(node):
            text += gap
            if child is not None:
                text += self._with_outputs(child)
        return text

    def _output(self, node: Node) -> str:
        """The output of a command substitution if the script shows it; else its own text without quotes."""
        text = _text(node)
        if len(node.named_children) != 1 or text.startswith("`"):
            return text
        inner = Shell(dict(self.values), files=dict(self.files), depth=self.depth + 1, budget=self.budget)
        inner._walk(node.named_children[0])
        if inner.heredocs:
            return inner.heredocs[0][1].rstrip("\n")
        output = None
        if len(inner.runs) == 1:
            words = inner.runs[0].words
            if words[0] == "cat" and len(words) == 2 and _file_name(words[1]) in self.files:
                return self.files[_file_name(words[1])].rstrip("\n")
            output = command_output(words)
        return plain_call(text) if output is None else output


def _tee_target(runs: list[Run], target: str, *, appends: bool) -> tuple[str, bool]:
    """The file that the first `tee` writes to, and True if it appends; ``target`` and ``appends`` without a `tee`."""
    for run in runs:
        if run.words[0] not in ("tee", "sudo"):
            continue
        if "tee" in run.words:
            appends = "-a" in run.words
            for word in run.words[run.words.index("tee") + 1 :]:
                if not word.startswith("-"):
                    return word, appends
        return target, appends
    return target, appends


def _children(node: Node, *kinds: str) -> list[Node]:
    """The named children of a node with one of the types ``kinds``, in order."""
    return [child for child in node.named_children if child.type in kinds]


def _with_gaps(node: Node) -> Iterator[tuple[str, Node | None]]:
    """Yield the text before each child of a node and the child; at last the text after them and None."""
    raw, offset = node.text or b"", node.start_byte
    for child in node.children:
        yield raw[offset - node.start_byte : child.start_byte - node.start_byte].decode(), child
        offset = child.end_byte
    yield raw[offset - node.start_byte :].decode(), None


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _file_name(name: str) -> str:
    return restored(name).removeprefix("./")


def split_value(value: str) -> list[str]:
    """The words of an unquoted variable's value; quotes in it group words, as its author meant."""
    pieces = re.findall(r"(?:\$\((?:[^()]|\([^()]*\))*\)|\S)+", value)  # an unknown output stays one word
    if "$(" in value or not re.search(r"['\"\\]", value) or any(map(_is_json, pieces)):
        return pieces
    return words_of(value)


def _is_json(word: str) -> bool:
    return word.startswith('{"') and isinstance(json_value(word), dict)


def words_of(text: str) -> list[str]:
    """The words of a text as one command, without its newlines; split at spaces if it is no valid shell."""
    flat = re.sub(r"\\?[ \t]*\n[ \t]*", " ", text).strip()
    shell = Shell()
    shell.read(f": {flat}")
    root = parsed(f": {flat}")
    if root.has_error or len(shell.runs) != 1:
        return flat.split()
    return shell.runs[0].words[1:]
