"""Every GPU profile's rendered vLLM command, by vLLM's own parser and engine configuration.

What passing proves and what it does not stands in model_configs/README.md.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.drafthouse.core.plugins.module_utils.house import (
    ROOT,
    resolved_profile,
    site_of_inventory,
)

from tests.engines import engine_home

HERE = Path(__file__).resolve().parent
Command = dict[str, Any]
Verdict = dict[str, str]


def gpu_profiles() -> list[str]:
    """Return the vLLM profiles that cannot be served here. Those for CPU are served for real in this lane."""
    hardware = yaml.safe_load((ROOT / "profiles" / "catalog" / "hardware.yml").read_text("utf-8"))
    found = []
    for path in sorted((ROOT / "profiles").glob("*.yml")):
        profile = yaml.safe_load(path.read_text("utf-8"))
        if profile["engine"] == "vllm" and hardware[profile["hardware"]]["kind"] == "gpu":
            found.append(path.stem)
    return found


def exec_words(script: str) -> list[str]:
    """Return the words of the command that a rendered serve.sh runs, split by the shell itself."""
    (_, command) = script.split("\nexec ", 1)
    words = ["bash", "-c", f"printf '%s\\0' {command}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def rendered(profile: str, arm: str) -> Command:
    hardware = yaml.safe_load((ROOT / "profiles" / "catalog" / "hardware.yml").read_text("utf-8"))
    chosen = yaml.safe_load((ROOT / "profiles" / f"{profile}.yml").read_text("utf-8"))["hardware"]
    resolved = resolved_profile(profile, site_of_inventory(hardware[chosen]["inventory"]))
    (script,) = [file["content"] for file in resolved["arms"][arm]["files"] if file["path"].endswith("serve.sh")]
    models = [model for model in (resolved["target"], resolved["draft"]) if model]
    return {
        "name": f"{profile} {arm}",
        "argv": exec_words(script),
        "model_configs": {model["path"]: config_of(model) for model in models},
    }


def config_of(model: dict[str, Any]) -> dict[str, Any]:
    name = model["source"]["hub"]["repo"].split("/")[-1]
    config: dict[str, Any] = json.loads((HERE / "model_configs" / f"{name}.json").read_text("utf-8"))
    return config


@pytest.fixture(scope="session")
def check() -> Callable[[list[Command]], list[Verdict]]:
    python = engine_home("vllm") / "bin" / "python"

    def run(commands: list[Command]) -> list[Verdict]:
        done = subprocess.run(
            [str(python), str(HERE / "check_commands.py")],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        verdicts = [json.loads(line) for line in done.stdout.splitlines()]
        assert [verdict["name"] for verdict in verdicts] == [command["name"] for command in commands], done.stderr
        return verdicts

    return run


def changed(command: Command, name: str, edit: Callable[[list[str]], list[str]]) -> Command:
    return {**command, "name": name, "argv": edit(list(command["argv"]))}


def with_speculation(command: Command, name: str, **keys: object) -> Command:
    """Change keys of the speculative configuration; None takes a key away."""

    def edit(words: list[str]) -> list[str]:
        place = words.index("--speculative-config") + 1
        settings = {**json.loads(words[place]), **keys}
        words[place] = json.dumps({key: value for key, value in settings.items() if value is not None})
        return words

    return changed(command, name, edit)


def test_every_rendered_command_passes(check: Callable[[list[Command]], list[Verdict]]) -> None:
    commands = [rendered(profile, arm) for profile in gpu_profiles() for arm in ("baseline", "speculative")]
    assert commands
    refused = [verdict for verdict in check(commands) if (verdict["parser"], verdict["engine_config"]) != ("ok", "ok")]
    assert refused == []


def test_what_is_wrong_is_refused(check: Callable[[list[Command]], list[Verdict]]) -> None:
    eagle = rendered("rtx6000-qwen-eagle3", "speculative")
    draft = rendered("h100-llama33-draft3b", "speculative")

    def misused(name: str, *words: str, command: Command = eagle) -> Command:
        return changed(command, name, lambda argv: [*argv, *words])

    expected = [
        (
            with_speculation(eagle, "misspelt key", num_speculative_token=3),
            "num_speculative_token: Unexpected",
        ),
        (with_speculation(eagle, "no tokens", num_speculative_tokens=0), "should be greater than 0"),
        (with_speculation(eagle, "other engine's", method="arctic"), "method: Input should be 'ngram'"),
        (with_speculation(draft, "draft TP", draft_tensor_parallel_size=2), "other value than 1 or target"),
        (misused("misspelt flag", "--max-model-length", "9"), "unrecognized arguments: --max-model-length"),
        (misused("flag of 2024", "--speculative-model", "x"), "unrecognized arguments: --speculative-model"),
        (misused("misspelt parser", "--reasoning-parser", "qwen33"), "parser 'qwen33' not found"),
        (misused("TP that divides nothing", "--tensor-parallel-size", "3"), "divisible by tensor parallel"),
        (misused("context beyond the model", "--max-model-len", "400000"), "greater than the derived"),
        (misused("half a tool choice", "--enable-auto-tool-choice"), "requires --tool-call-parser"),
        (changed(eagle, "not serve", lambda argv: argv[:1]), "no `serve` in the command"),
    ]
    verdicts = check([command for command, _ in expected])
    for verdict, (_, words) in zip(verdicts, expected, strict=True):
        said = verdict["parser"] if verdict["parser"] != "ok" else verdict["engine_config"]
        assert words in said, verdict


def test_the_three_ways_to_write_the_same_speculation_pass(
    check: Callable[[list[Command]], list[Verdict]],
) -> None:
    eagle = rendered("rtx6000-qwen-eagle3", "speculative")
    place = eagle["argv"].index("--speculative-config")
    settings = json.loads(eagle["argv"][place + 1])
    plain = [*eagle["argv"][:place], *eagle["argv"][place + 2 :]]
    dotted = [word for key, value in settings.items() for word in (f"--speculative-config.{key}", str(value))]
    names = {"method": "--spec-method", "model": "--spec-model", "num_speculative_tokens": "--spec-tokens"}
    short = [word for key, flag in names.items() for word in (flag, str(settings[key]))]
    verdicts = check(
        [
            eagle,
            {**eagle, "name": "dotted", "argv": [*plain, *dotted]},
            {**eagle, "name": "short", "argv": [*plain, *short]},
        ]
    )
    assert {verdict["engine_config"] for verdict in verdicts} == {"ok"}


def test_parser_only_is_named_and_not_called_proven(check: Callable[[list[Command]], list[Verdict]]) -> None:
    command = with_speculation(rendered("rtx6000-qwen-eagle3", "speculative"), "arctic", method="arctic")
    (verdict,) = check([{**command, "parser_only": "stock vLLM does not know it"}])
    assert (verdict["parser"], verdict["engine_config"]) == ("ok", "not tried: stock vLLM does not know it")


def test_messages_show_the_commands_own_paths(check: Callable[[list[Command]], list[Verdict]]) -> None:
    draft = rendered("h100-llama33-draft3b", "speculative")
    path = list(draft["model_configs"])[1]
    (verdict,) = check([changed(draft, "old", lambda argv: [*argv, "--speculative-model", path])])
    assert path in verdict["parser"]
