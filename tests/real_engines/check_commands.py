"""Pass rendered `vllm serve` commands through vLLM's own parser and its engine configuration.

Run it with the interpreter of a vLLM environment (no GPU, no weights, no network):

    <engine home>/bin/python tests/real_engines/check_commands.py < commands.json

Each line of standard input is a list of ``{"name": …, "argv": [… "serve" …], "model_configs": {path: config.json}}``.
Each path of ``model_configs`` becomes a folder with that config.json, wherever the path stands in argv,
alone or inside JSON. A stand-in tokenizer is put beside it, which knows the marks of ``"added_tokens"``
(default: ``<think>`` and ``</think>``): the configuration looks up a reasoning parser's marks in it.
``"parser_only": "why"`` leaves out the second step; ``"environment": {name: value}`` holds for the one command.

Standard output is a JSON line for each command: ``{"name", "vllm", "parser", "engine_config"}``, where the
last two are ``ok`` or the error's text. Exit status 1 when any is not ok. vLLM's log goes to standard error.
The configuration is made for the CPU platform: checks that only a GPU platform makes are not exercised.
"""

import contextlib
import dataclasses
import importlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

# Before vLLM is imported: a missing file is an error and not a download.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
# What makes the wheel for CUDA choose the CPU's platform (0.33.0, which has no build for CPU).
os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")

# Where the server checks its own arguments, newest first (0.32.0, 0.15.1).
SERVER_MODULES = ("vllm.entrypoints.launchers.launcher", "vllm.entrypoints.openai.api_server")


def substitute(value: Any, folders: dict[str, str]) -> Any:
    """Plain data with every text that is a model's path replaced by its folder here."""
    if isinstance(value, str):
        return folders.get(value, value)
    if isinstance(value, list):
        return [substitute(item, folders) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, folders) for key, item in value.items()}
    return value


def substitute_word(word: str, folders: dict[str, str]) -> str:
    """One word of a command line with a model's path replaced: alone, behind ``=``, inside JSON."""
    if word in folders:
        return folders[word]
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--"):
        return f"{flag}={substitute_word(value, folders)}"
    if word.startswith("{"):
        with contextlib.suppress(ValueError):
            return json.dumps(substitute(json.loads(word), folders))
    return word


def write_tokenizer(folder: Path, added_tokens: list[str]) -> None:
    """Write the smallest tokenizer that transformers loads, with ``added_tokens`` as tokens of their own."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", *added_tokens])}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": vocabulary[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": False,
            }
            for token in added_tokens
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def write_models(configs: dict[str, Any], added_tokens: list[str], root: Path) -> dict[str, str]:
    """Write a folder under ``root`` for each config.json; return path in the command -> folder here."""
    folders = {}
    for number, (path, config) in enumerate(configs.items()):
        # The last part of the path stays: vLLM reads meaning from a draft's name.
        folder = root / str(number) / Path(path).name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        write_tokenizer(folder, added_tokens)
        folders[path] = str(folder)
    return folders


def reason(error: BaseException, printed: str, folders: dict[str, str]) -> str:
    """An error's text in one line, with the command's own paths: argparse prints, the rest raises."""
    text = _words(error, printed)
    for path, folder in folders.items():
        text = text.replace(folder, path)
    return text


def _words(error: BaseException, printed: str) -> str:
    if isinstance(error, SystemExit):
        lines = [line for line in printed.strip().splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit status {error.code}"
    # pydantic's own list is readable; its text repeats all the input.
    found = error.errors() if hasattr(error, "errors") else []
    told = "; ".join(": ".join([".".join(map(str, item["loc"])), item["msg"]]).lstrip(": ") for item in found)
    return f"{type(error).__name__}: {told or ' '.join(str(error).split())}"


def parse(argv: list[str]) -> Any:
    """What `vllm serve` makes of its command line, by its own parser and checks."""
    serve = importlib.import_module("vllm.entrypoints.cli.serve")
    parser = flexible_parser()(prog="vllm")
    command = serve.ServeSubcommand()
    command.subparser_init(parser.add_subparsers(dest="subparser"))
    args = parser.parse_args(argv)
    command.validate(args)
    # What the command does before anything else (vllm/entrypoints/cli/serve.py).
    if args.model_tag is not None:
        args.model = args.model_tag
    return args


def flexible_parser() -> Any:
    """VLLM's FlexibleArgumentParser, from where this version keeps it."""
    try:
        return importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    except ImportError:  # 0.9.2 has one file of all utilities
        return importlib.import_module("vllm.utils").FlexibleArgumentParser


def make_engine_config(args: Any) -> None:
    """Make the engine's configuration as the server does, without an engine."""
    arg_utils = importlib.import_module("vllm.engine.arg_utils")
    usage = importlib.import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    arg_utils.AsyncEngineArgs.from_cli_args(args).create_engine_config(usage)


def check_server_args(args: Any) -> None:
    """Make the server's own check of parsers' names, which is no part of the engine's configuration in 0.15."""
    function = None
    for module in SERVER_MODULES:
        with contextlib.suppress(ImportError):
            function = function or getattr(importlib.import_module(module), "validate_api_server_args", None)
    if function is None:
        raise RuntimeError(f"validate_api_server_args is in none of {', '.join(SERVER_MODULES)}")
    function(args)


def require_known_keys(settings: Any) -> None:
    """Raise ValueError for a speculative key that this vLLM has no field for: 0.9.1 to 0.15.1 ignore it unseen."""
    config = importlib.import_module("vllm.config").SpeculativeConfig
    unknown = sorted(set(settings or {}) - {field.name for field in dataclasses.fields(config)})
    if unknown:
        raise ValueError(f"speculative keys that this vLLM ignores without a word: {', '.join(unknown)}")


def check(command: dict[str, Any], root: Path) -> dict[str, str]:
    """One command's verdicts."""
    verdict = {"name": command["name"], "parser": "ok", "engine_config": "not tried: the parser refused"}
    argv = list(command["argv"])
    if "serve" not in argv:
        verdict["parser"] = "no `serve` in the command"
        return verdict
    marks = command.get("added_tokens", ["<think>", "</think>"])
    folders = write_models(command.get("model_configs", {}), marks, root)
    words = [substitute_word(word, folders) for word in argv[argv.index("serve") :]]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            args = parse(words)
    except (Exception, SystemExit) as error:
        verdict["parser"] = reason(error, printed.getvalue(), folders)
        return verdict
    if command.get("parser_only"):
        verdict["engine_config"] = f"not tried: {command['parser_only']}"
        return verdict
    # The engine's configuration adds keys of its own to the same dictionary.
    settings = dict(getattr(args, "speculative_config", None) or {})
    try:
        make_engine_config(args)
        require_known_keys(settings)
        check_server_args(args)
        verdict["engine_config"] = "ok"
    except (Exception, SystemExit) as error:
        verdict["engine_config"] = reason(error, "", folders)
    return verdict


def inspect_in_this_process() -> None:
    """Have vLLM read a model's class here: to keep CUDA out it starts a process for each, which imports all of it."""
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda inspect: inspect()


def main() -> int:
    """Check the commands of standard input."""
    # vLLM logs to standard output; the answers must stay alone there.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    version = importlib.import_module("vllm").__version__
    inspect_in_this_process()
    refused = False
    with tempfile.TemporaryDirectory() as root:
        for number, command in enumerate(command for line in sys.stdin for command in json.loads(line)):
            before = dict(os.environ)
            os.environ.update({name: str(value) for name, value in command.get("environment", {}).items()})
            verdict = {"vllm": version, **check(command, Path(root) / str(number))}
            # 0.9.2 notes the engine it chose (VLLM_USE_V1) there, and would hold the next command to it.
            os.environ.clear()
            os.environ.update(before)
            refused |= verdict["parser"] != "ok" or not verdict["engine_config"].startswith(("ok", "not tried: "))
            print(json.dumps(verdict), file=answers, flush=True)
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
