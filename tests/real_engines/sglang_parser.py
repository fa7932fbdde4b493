"""Pass rendered commands of SGLang through its own argument parser, out of its wheel and without PyTorch.

Run it with the interpreter of an environment that has the wheel and `msgspec`, and nothing else of SGLang's needs:

    <home>/bin/python tests/real_engines/sglang_parser.py < commands.json
    <home>/bin/python tests/real_engines/sglang_parser.py --rows

Standard input is a list of ``{"name": …, "argv": [flags]}``; standard output a JSON line for each:
``{"name", "sglang", "parser"}``, where the last is ``ok`` or the parser's own words. Exit status 1 when any is not ok.
With --rows it prints the parser's actions instead, for scripts/engine_flags.py.

Since 0.5.20 the flags stand in structures of their own (`srt/arg_groups/fields/`), which need `msgspec` alone. What
imports PyTorch beside them is stood in for here: three helpers that read a value, and names that no flag depends on;
what `server_args.py` adds by hand is read in its source.
It refuses unknown flags, wrong types and words that are no choice; which of them go together is checked elsewhere in
SGLang (`arg_groups/speculative_hook.py`), behind PyTorch, and not here.
"""

import argparse
import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = (
    "sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.model_executor", "sglang.srt.lora", "sglang.srt.parser",
    "sglang.srt.function_call",
)  # fmt: skip
#: `human_readable_int` of `srt/utils/common.py`: 1k is 1,000, 1K is 1,024.
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def whole(text: str) -> int:
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1:] in UNITS else int(text)


def stand_in(name: str, **names: Any) -> types.ModuleType:
    """Put a module of this name in its place, with no more than ``names`` in it."""
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module
    return module


def without_torch() -> None:
    """Make the modules of the flags importable: their packages by path alone, and what would import PyTorch."""
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("no SGLang in this environment")
    root = Path(next(iter(found.submodule_search_locations))).parent
    for name in PACKAGES:
        stand_in(name, __path__=[str(root / name.replace(".", "/"))])
    stand_in(
        "sglang.srt.utils.common",
        json_list_type=json.loads,
        nullable_str=lambda text: None if not text or text == "None" else text,
        human_readable_int=whole,
        LORA_TARGET_ALL_MODULES="all",
        SUPPORTED_LORA_TARGET_MODULES=[],
    )
    stand_in("sglang.srt.runtime_context", get_exec=lambda *given, **named: None)
    stand_in("sglang.srt.lora.lora_registry", LoRARef=type("LoRARef", (), {}))


def parser() -> argparse.ArgumentParser:
    """SGLang's own parser of its server's flags."""
    without_torch()
    add = importlib.import_module("sglang.srt.arg_groups.arg_utils").add_cli_args_from_dataclass
    struct = importlib.import_module("msgspec").Struct
    made = argparse.ArgumentParser("sglang", allow_abbrev=False)
    folder = Path(str(importlib.import_module("sglang.srt.arg_groups.fields").__path__[0]))
    for file in sorted(folder.glob("*.py")):
        if file.stem == "__init__":
            continue
        module = importlib.import_module(f"sglang.srt.arg_groups.fields.{file.stem}")
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, struct) and "_NS_PATH" in vars(one):
                add(made, one)
    choices = {
        "--reasoning-parser": names("parser.reasoning_parser_names", "REASONING_PARSER_NAMES"),
        "--tool-call-parser": names("function_call.parser_names", "TOOL_CALL_PARSER_NAMES"),
    }
    known = {spelling for action in made._actions for spelling in action.option_strings}
    for name, switch in by_hand(folder.parents[1] / "server_args.py"):
        if name not in known and switch:
            made.add_argument(name, action="store_true")
        elif name not in known:
            made.add_argument(name, choices=choices.get(name))
    return made


def by_hand(source: Path) -> Iterator[tuple[str, bool]]:
    """Yield the flags that `server_args.py`, which imports PyTorch, adds by hand, and whether each is a switch."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        called = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if called != "add_argument" or not isinstance(node, ast.Call) or not isinstance(node.args[0], ast.Constant):
            continue
        action = next((ast.unparse(one.value) for one in node.keywords if one.arg == "action"), "")
        yield str(node.args[0].value), "StoreTrue" in action or "store_true" in action


def names(module: str, constant: str) -> list[str] | None:
    """The words of a flag; None for any, where they stand behind PyTorch (0.5.20 and 0.5.21)."""
    try:
        return ["auto", *getattr(importlib.import_module(f"sglang.srt.{module}"), constant)]
    except ImportError:
        return None


def main() -> int:
    made = parser()
    if sys.argv[1:] == ["--rows"]:
        print(json.dumps([[list(one.option_strings), one.nargs, type(one).__name__] for one in made._actions]))
        return 0
    version = importlib.metadata.version("sglang")
    refused = False
    for command in json.load(sys.stdin):
        said = io.StringIO()
        verdict = "ok"
        try:
            with contextlib.redirect_stderr(said):
                made.parse_args(command["argv"])
        except SystemExit:
            verdict = said.getvalue().strip().splitlines()[-1].removeprefix("sglang: error: ")
            refused = True
        print(json.dumps({"name": command["name"], "sglang": version, "parser": verdict}))
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
