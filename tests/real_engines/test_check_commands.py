"""Every GPU profile's rendered vLLM command, by vLLM's own parser and engine configuration.

What passing proves and what it does not stands in model_configs/README.md.
"""

import atexit
import functools
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import translate
from tests.support.engines import check_home, engine_home

HERE = Path(__file__).resolve().parent
PROOFS = HERE / "proofs.json"
# The newest, the pin, the line before a separate draft had to be proven again, and the last with MLP speculators.
NEWEST = "0.33.0"
PIN = "0.32.0"
OLDEST = "0.9.2"
BETWEEN = "0.15.1"
CHECKED = (NEWEST, PIN, BETWEEN, OLDEST)
# Architectures whose module imports a vision processor, and that torchvision: the CPU environment is without it.
NEED_TORCHVISION = ("Qwen3_5", "Qwen4Exp", "MuseGlimmer", "Glm5Next")
PATIENCE_S = 1800
Command = dict[str, Any]
Verdict = dict[str, str]


def gpu_profiles() -> list[str]:
    """VLLM's profiles that cannot be served here. Those for CPU are served for real in this lane."""
    catalog = load_catalog(ROOT)
    return [
        name
        for name, profile in sorted(catalog.profiles.items())
        if profile["engine"] in ("vllm", "vllm-arctic") and catalog.hardware[profile["hardware"]]["kind"] == "gpu"
    ]


def exec_words(script: str) -> list[str]:
    """The words of the command that a rendered serve.sh runs, split by the shell itself."""
    (_, command) = script.split("\nexec ", 1)
    words = ["bash", "-c", f"printf '%s\\0' {command}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def rendered(profile: str, arm: str, version: str | None = None) -> Command:
    """The arm's command as it is rendered for ``version``.

    DrafthouseError where the profile is refused for it.
    """
    site = site_of_inventory("workstation")
    resolved = resolved_profile(profile, site, {"engine_version": version} if version else None)
    (script,) = [file["content"] for file in resolved["arms"][arm]["files"] if file["path"] == "serve.sh"]
    models = [model for model in (resolved["target"], resolved["draft"]) if model]
    command: Command = {
        "name": f"{profile} {arm}",
        "argv": exec_words(script),
        "environment": resolved["arms"][arm]["environment"],
        "model_configs": {model["path"]: config_of(model) for model in models},
    }
    if resolved["engine"]["id"] == "vllm-arctic" and arm == "speculative":
        command["parser_only"] = "the method is the plugin's own, and stock vLLM does not know it"
    if any(config["architectures"][0].startswith(NEED_TORCHVISION) for config in command["model_configs"].values()):
        command["parser_only"] = "the model's module asks for torchvision, which the CPU environment is without"
    if resolved["method"]["id"] == "dspark" and arm == "speculative":
        command["parser_only"] = (
            "only the second model runner drafts so, and that needs Triton, which the CPU build lacks"
        )
    return command


def config_of(model: Mapping[str, Any]) -> dict[str, Any]:
    name = model["source"]["hub"]["repo"].split("/")[-1]
    config: dict[str, Any] = json.loads((HERE / "model_configs" / f"{name}.json").read_text("utf-8"))
    return config


Check = Callable[[list[Command]], list[Verdict]]


@functools.cache
def checker(version: str, home: Path | None = None) -> Check:
    """A function that passes commands through the parser and engine configuration of a version.

    One process checks all that is asked of it: to import vLLM takes longer than most of the commands.
    """
    python = (home or check_home(version)) / "bin" / "python"
    log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - as long as the process
    words = [str(python), str(HERE / "check_commands.py")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    atexit.register(process.kill)
    assert process.stdin and process.stdout
    asked, told = process.stdin, process.stdout

    def run(commands: list[Command]) -> list[Verdict]:
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        try:
            asked.write(json.dumps(commands) + "\n")
            asked.flush()
            verdicts = [json.loads(told.readline() or "{}") for _ in commands]
        finally:
            patience.cancel()
        if [verdict.get("name") for verdict in verdicts] != [command["name"] for command in commands]:
            log.seek(0)
            raise AssertionError(log.read())
        return verdicts

    return run


@pytest.fixture(scope="session")
def check() -> Check:
    return checker(PIN)


def changed(command: Command, name: str, edit: Callable[[list[str]], list[str]]) -> Command:
    return {**command, "name": name, "argv": edit(list(command["argv"]))}


def without(argv: list[str], flag: str) -> list[str]:
    """A command's words without a flag and its value."""
    place = argv.index(flag)
    return argv[:place] + argv[place + 2 :]


def with_speculation(command: Command, name: str, **keys: object) -> Command:
    """Change keys of the speculative configuration; None takes a key away."""

    def edit(words: list[str]) -> list[str]:
        place = words.index("--speculative-config") + 1
        settings = {**json.loads(words[place]), **keys}
        words[place] = json.dumps({key: value for key, value in settings.items() if value is not None})
        return words

    return changed(command, name, edit)


def proof(version: str) -> dict[str, Any]:
    """What ``version`` says of every profile: ok, not tried and why, or what the resolver refuses it with."""
    found: dict[str, Any] = {}
    commands: list[Command] = []
    for profile in gpu_profiles():
        # A plugin's version is the pair's: its flags are looked at as they are, by versions that had them already.
        own = load_catalog(ROOT).profiles[profile]["engine"] == "vllm-arctic"
        if own and version == OLDEST:
            continue
        try:
            commands += [rendered(profile, arm, None if own else version) for arm in ("baseline", "speculative")]
        except DrafthouseError as error:
            found[profile] = {"refused": "; ".join(problem.found for problem in error.problems)}
    # Suffix decoding's tree is a package of its own, in an environment of its own.
    with_tree = [command for command in commands if command["name"].startswith("rtx6000-gptoss-suffix ")]
    plain = [command for command in commands if command not in with_tree]
    if version == PIN:
        verdicts = checker(version)(plain) + checker(version, engine_home("vllm-suffix"))(with_tree)
    else:
        reason = "the suffix tree is built for the pinned version only"
        with_tree = [
            command | ({"parser_only": reason} if command["name"].endswith("speculative") else {})
            for command in with_tree
        ]
        verdicts = checker(version)(plain + with_tree)
    for verdict in verdicts:
        profile, arm = verdict["name"].split()
        found.setdefault(profile, {})[arm] = {"parser": verdict["parser"], "engine_config": verdict["engine_config"]}
    return dict(sorted(found.items()))


# Every day by the pinned version; the environments of the others take minutes to make.
by_each_version = pytest.mark.parametrize(
    "version", [pytest.param(one, marks=[] if one == PIN else pytest.mark.soak) for one in CHECKED]
)


@by_each_version
def test_every_rendered_command_as_it_stands_in_the_proofs(version: str) -> None:
    """The table of docs/proof.md is made of this file; WRITE_PROOFS=1 writes it anew."""
    kept = json.loads(PROOFS.read_text("utf-8")) if PROOFS.is_file() else {}
    found = proof(version)
    if os.environ.get("WRITE_PROOFS"):
        PROOFS.write_text(json.dumps({**kept, version: found}, indent=1) + "\n", "utf-8")
    assert found == kept.get(version) or os.environ.get("WRITE_PROOFS")
    for profile, arms in found.items():
        for arm, verdict in arms.items():
            if arm != "refused":
                assert verdict["parser"] == "ok", (profile, arm, verdict)
                assert verdict["engine_config"].startswith(("ok", "not tried: ")), (profile, arm, verdict)


def test_what_is_wrong_is_refused(check: Check) -> None:
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
        (
            changed(eagle, "half a tool choice", lambda argv: without(argv, "--tool-call-parser")),
            "requires --tool-call-parser",
        ),
        (changed(eagle, "not serve", lambda argv: argv[:1]), "no `serve` in the command"),
    ]
    verdicts = check([command for command, _ in expected])
    for verdict, (_, words) in zip(verdicts, expected, strict=True):
        said = verdict["parser"] if verdict["parser"] != "ok" else verdict["engine_config"]
        assert words in said, verdict


@pytest.mark.soak
def test_the_newest_judges_by_its_own_rules(check: Check) -> None:
    medusa = rendered("rtx6000-llama31-medusa", "speculative")
    assert check([medusa])[0]["engine_config"] == "ok"
    (verdict,) = checker(NEWEST)([medusa])
    assert (verdict["vllm"], verdict["parser"]) == (NEWEST, "ok")
    assert "method: Input should be 'ngram', 'draft_model'" in verdict["engine_config"], verdict
    assert "'medusa'" not in verdict["engine_config"], verdict


def test_the_three_ways_to_write_the_same_speculation_pass(
    check: Check,
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


def test_parser_only_is_named_and_not_called_proven(check: Check) -> None:
    command = with_speculation(rendered("rtx6000-qwen-eagle3", "speculative"), "arctic", method="arctic")
    (verdict,) = check([{**command, "parser_only": "stock vLLM does not know it"}])
    assert (verdict["parser"], verdict["engine_config"]) == ("ok", "not tried: stock vLLM does not know it")


def test_messages_show_the_commands_own_paths(check: Check) -> None:
    draft = rendered("h100-llama33-draft3b", "speculative")
    path = list(draft["model_configs"])[1]
    (verdict,) = check([changed(draft, "old", lambda argv: [*argv, "--speculative-model", path])])
    assert path in verdict["parser"]


ARTICLES = sorted((ROOT / "tests" / "unit" / "translate" / "commands").glob("*.txt"))


@by_each_version
def test_the_articles_commands_as_they_are_translated_pass_the_parser(version: str) -> None:
    """Parser only: the models that the articles name have no configuration here."""
    catalog, flags = load_catalog(ROOT), load_flags(ROOT)
    commands: dict[str, list[Command]] = {}
    for path in ARTICLES:
        for found in translate(path.read_text("utf-8"), catalog, flags, lambda name: None)[0]:
            if found.engine in ("vllm", "vllm-arctic"):
                words = [str(word) for flag in found.command for word in flag]
                command = {"name": path.stem, "argv": words, "parser_only": "a translation"}
                commands.setdefault(found.version if found.version in CHECKED else PIN, []).append(command)
    assert sum(map(len, commands.values())) >= 16
    if version in commands:
        refused = [verdict for verdict in checker(version)(commands[version]) if verdict["parser"] != "ok"]
        assert refused == []
