"""What must be true of every file that is rendered, whatever the strings are that it is made of."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from supervisor.options import ServerOptions

from drafthouse.addons import gateway, monitoring
from drafthouse.addons.watchdog.order import entries
from drafthouse.cloud.vast.body import body_of
from drafthouse.core.box_archive import archive_file
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.plain_text import hidden_character, printable
from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.container import arm_container, engine_words
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.supervisor import Program, configuration
from tests.support.compose import engine_words_of, plain_compose
from tests.support.hostile import Called, Sandbox

TEMPLATES = ROOT / "templates"
_USERS = ["--port", "9", "a b"]
_HOME_LINES = {"[Unit]", "[Service]", "[Install]"}


def check_refusal(error: DrafthouseError) -> None:
    """What is refused is named with its place, in lines that steer no terminal."""
    for problem in error.problems:
        assert problem.found and problem.needed and problem.do, problem
        assert re.match(r"(profiles/|site|gateway|monitoring|benchmarks/|prompt file |'|$)", problem.where), problem
        for line in problem.lines():
            assert not hidden_character(line.replace("\n", "")), line


def check_all(resolved: Any, box: Sandbox) -> None:
    """Check every file that is made of a resolved profile."""
    _key(resolved, box)
    for arm in resolved["arms"].values():
        _check_arm(resolved, arm, box)
    for file in resolved["extras"]:
        _check_extra(resolved, file, box)
    _check_gateway(resolved, box)
    _check_monitoring(resolved, box)
    _check_watchdog(resolved, box)
    _check_supervisor(resolved, box)
    _check_rental(resolved, box)
    assert not hidden_character(plan_text(resolved).replace("\n", ""))


def _inside(path: str, box: Sandbox) -> bool:
    """Tell whether a path lies in the sandbox, where the test may make it."""
    return os.path.realpath(path).startswith(f"{os.path.realpath(box.folder)}/")


def _key(resolved: Any, box: Sandbox) -> bool:
    """Put the key where the scripts read it; tell whether that can be."""
    if not _inside(resolved["key_file"], box):
        return False
    try:
        Path(resolved["key_file"]).parent.mkdir(parents=True, exist_ok=True)
        Path(resolved["key_file"]).write_text("the-key\n")
    except OSError:  # a name that is too long for this machine's disk
        return False
    return True


def _new(content: str, box: Sandbox) -> bool:
    """Tell whether this very text has not been looked at yet."""
    fresh = content not in box.seen
    box.seen.add(content)
    return fresh


def _script(content: str, box: Sandbox, name: str = "script") -> Path:
    """Write a script, which its shell must be able to read as a whole."""
    path = box.folder / name
    path.write_text(content, "utf-8")
    shell = "bash" if "bash" in content.split("\n", 1)[0] else "sh"
    read = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, ""), f"{read.stderr}\n{content}"
    return path


def _check_arm(resolved: Any, arm: Mapping[str, Any], box: Sandbox) -> None:
    files = {file["path"]: file["content"] for file in arm["files"]}
    for path, content in files.items():
        if path == "serve.sh" and _new(content, box):
            _check_serve(resolved, arm, content, box)
        elif path != "serve.sh":
            assert "/" not in path
            assert yaml.safe_load(content) == arm["config"]["data"]


def _check_serve(resolved: Any, arm: Mapping[str, Any], content: str, box: Sandbox) -> None:
    script = _script(content, box)
    program, *words = arm["command"]
    wanted = [*words, *(str(word) for flag in arm["flags"] for word in flag)]
    if arm["config"]:
        wanted += [arm["config"]["flag"], f"{box.folder}/{arm['config']['file']}"]
    # Whose PATH is another's finds our program no more; it must run nothing for all that.
    called = box.run(["bash", str(script), *_USERS]) if box.has(program) else Called(None, {}, "", "")
    if not box.has(program):
        box.run(["bash", str(script), *_USERS])
    elif "PATH" not in arm["environment"] and (not resolved["engine"]["key_environment"] or _key(resolved, box)):
        assert called.words == [*wanted, *_USERS], called.said
        assert {name: called.environment.get(name) for name in arm["environment"]} == arm["environment"]


def _check_extra(resolved: Any, file: Mapping[str, str], box: Sandbox) -> None:
    path, content = file["path"], file["content"]
    assert ".." not in Path(path).parts and not path.startswith("/")
    if not _new(f"{path} {content}", box):
        return
    if path == "smoke.sh":
        _check_smoke(resolved, content, box)
    elif path == "Containerfile":
        _check_containerfile(resolved["derived_image"], content, box)
    elif path.endswith("compose.yaml"):
        _check_compose(resolved, path, content)
    elif path.endswith("offline.py"):
        _check_offline(resolved, path.split("/")[0], content, box)
    elif path.endswith(".yaml"):
        assert yaml.safe_load(content) == _arm(resolved, path)["config"]["data"]
    else:
        assert path == "stock/serve.sh", f"nothing is known of {path}"
        _check_serve(resolved, _arm(resolved, path), content, box)


def _arm(resolved: Any, path: str) -> Mapping[str, Any]:
    """The arm of a file for people: the one in whose folder it lies."""
    name = path.split("/", maxsplit=1)[0]
    found: Mapping[str, Any] = resolved["arms"].get(name) or resolved["stock"]
    return found


def _check_smoke(resolved: Any, content: str, box: Sandbox) -> None:
    box.has("curl")
    called = box.run(["bash", str(_script(content, box))], DRAFTHOUSE_API_KEY="none", MAX_TOKENS="1")
    assert called.words is not None, called.said
    site = resolved["site"]
    assert f"http://{site['host']}:{site['port']}/v1/chat/completions" in called.words
    request = yaml.safe_load(called.words[called.words.index("--data-raw") + 1])
    assert request["model"] == resolved["target"]["served_name"]
    assert sorted(request) == ["max_tokens", "messages", "model", "temperature"]
    assert request["max_tokens"] == 1


def _check_containerfile(derived: Mapping[str, Any], content: str, box: Sandbox) -> None:
    lines = content.splitlines()
    assert [line.split(" ", 1)[0] for line in lines] == ["FROM", "RUN"]
    assert lines[0] == f"FROM {derived['base']}" and len(lines[0].split()) == 2
    assert not lines[1].endswith("\\")
    box.has("uv")
    called = box.run(["sh", "-c", lines[1].removeprefix("RUN ")], READS="1")
    read = [line.split(" --hash=")[0] for line in called.read.splitlines()]
    assert read == list(derived["packages"]), called


def _check_compose(resolved: Any, path: str, content: str) -> None:
    """What is written there is read back as the very container that runs, field by field."""
    service = plain_compose(content)
    service.pop("build", None)
    assert engine_words_of(service) == engine_words(arm_container(resolved, path.split("/", maxsplit=1)[0]))


class _Model:
    """Stands for vLLM's class: remembers what it was made with."""

    given: Mapping[str, Any] = {}

    def __init__(self, **given: Any) -> None:
        type(self).given = given

    def chat(self, *_: Any) -> list[Any]:
        return []

    get_metrics = chat


@contextlib.contextmanager
def _stood_in(box: Sandbox) -> Iterator[None]:
    """Run a Python program in the sandbox's folder with a stand-in for vLLM, and leave no trace of it."""
    module = types.ModuleType("vllm")
    module.LLM, module.SamplingParams = _Model, lambda **_: None  # type: ignore[attr-defined]
    before, environ, words = Path.cwd(), dict(os.environ), sys.argv
    sys.modules["vllm"], sys.argv = module, ["offline.py"]
    os.chdir(box.inside)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environ)
        sys.argv = words
        del sys.modules["vllm"]


def _check_offline(resolved: Any, name: str, content: str, box: Sandbox) -> None:
    tree = ast.parse(content)
    assert ast.get_docstring(tree)
    program = compile(tree, "offline.py", "exec")
    with _stood_in(box):
        exec(program, {"__name__": "__main__"})
    box.untouched()
    wanted = {"model": resolved["target"]["path"], **resolved["offline"], "disable_log_stats": False}
    if name == "speculative":
        wanted["speculative_config"] = resolved["method"]["settings"]
    assert _Model.given == wanted


# --- what stands beside the engine ----------------------------------------------------------------------


def _entries(files: Any) -> dict[str, str]:
    return {file["path"]: file["content"] for file in files if "content" in file}


def _check_gateway(resolved: Any, box: Sandbox) -> None:
    site, wished = resolved["site"], resolved["gateway"]
    if not wished:
        return
    settings = gateway.Settings(
        home=site["home"], port=wished["port"], upstream=f"127.0.0.1:{site['port']}", key_file=resolved["key_file"],
        name=wished["name"], health=resolved["engine"]["health"], hold_s=wished.get("hold_s", 0),
    )  # fmt: skip
    try:
        made = _entries(gateway.files(TEMPLATES, settings))
    except DrafthouseError as error:
        check_refusal(error)
        return
    caddyfile, script = made[f"{settings.folder}/Caddyfile"], made[f"{settings.folder}/serve.sh"]
    # Nothing that is put in opens or closes a block, or begins a line.
    plain = _entries(gateway.files(TEMPLATES, _plain(settings)))[f"{_plain(settings).folder}/Caddyfile"]
    assert [line.split()[:1] for line in caddyfile.splitlines() if "https://" not in line] == [
        line.split()[:1] for line in plain.splitlines() if "https://" not in line
    ]
    if _new(script, box) and _key(resolved, box):
        box.has("caddy")
        called = box.run(["sh", str(_script(script, box))])
        assert called.words == ["run", "--adapter", "caddyfile", "--config", f"{settings.folder}/Caddyfile"], (
            called.said
        )


def _plain(settings: gateway.Settings) -> gateway.Settings:
    return gateway.Settings(home="/h", port=settings.port, upstream=settings.upstream, key_file="/h/k",
                            name=settings.name and "llm.example.org", hold_s=settings.hold_s)  # fmt: skip


def _check_monitoring(resolved: Any, box: Sandbox) -> None:
    wished, site = resolved["monitoring"], resolved["site"]
    if not wished:
        return
    settings = monitoring.Settings(
        home=site["home"], process_manager="systemd", box="a 'box' {{ x }} $(touch canary)",
        key_file=resolved["key_file"], requested=wished,
        binaries={name: f"{site['home']}/bin/{name}" for name in wished["programs"]},
        images={"dcgm": "dcgm", "grafana": "grafana"},
    )  # fmt: skip
    if not _new(repr(settings), box):
        return
    try:
        made = monitoring.build_files(TEMPLATES, settings)
    except DrafthouseError as error:
        check_refusal(error)
        return
    for path, content in _entries(made["entries"]).items():
        if path.endswith((".yml", ".json")):
            assert yaml.load(content, Loader=yaml.CSafeLoader)
        if path.endswith("serve.sh") and _new(content, box):
            _check_program(path, content, site["home"], box)
        if path.endswith("prometheus.yml"):
            assert yaml.safe_load(content) == monitoring.prometheus_config(settings)
        if path.endswith("rules.yml"):
            told = {rule.get("alert"): rule for rule in yaml.safe_load(content)["groups"][0]["rules"]}
            for alert in ("EngineDown", "EngineRestarts"):
                assert f": {printable(wished['log'])}; make rollback" in told[alert]["annotations"]["description"]
    for unit in made["units"]:
        check_unit(
            unit["content"], [f"{site['home']}/monitoring/programs/{Path(unit['path']).stem.split('-')[-1]}/serve.sh"]
        )


def _check_program(path: str, content: str, home: str, box: Sandbox) -> None:
    script = _script(content, box)
    program = Path(home) / "bin" / Path(path).parent.name
    if not _inside(str(program), box):
        return
    with contextlib.suppress(OSError):
        program.parent.mkdir(parents=True, exist_ok=True)
        program.unlink(missing_ok=True)
        program.symlink_to(box.recorder)
        called = box.run(["sh", str(script)])
        assert called.words and all(word.startswith("--") for word in called.words), called


def check_unit(content: str, scripts: list[str]) -> None:
    """A unit has its own directives and no others, and starts one script of ours."""
    known = {
        "Description", "After", "ExecStart", "Restart", "RestartSec", "DynamicUser", "CapabilityBoundingSet",
        "StateDirectory", "StateDirectoryMode", "LoadCredential", "WantedBy", "Type", "RemainAfterExit", "User",
        "KillMode", "UMask",
    }  # fmt: skip
    lines = [line for line in content.splitlines() if line and not line.startswith("#")]
    assert all(line in _HOME_LINES or line.partition("=")[0] in known for line in lines), lines
    assert not any(line.endswith("\\") for line in lines)
    (start,) = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    # systemd.service(5): words as in a shell; % and $ would be filled in.
    assert "%" not in start and "$" not in start
    assert shlex.split(start)[-1] in scripts


def _check_watchdog(resolved: Any, box: Sandbox) -> None:
    home = resolved["site"]["home"]
    if not _new(f"watchdog of {home}", box):
        return
    order: Any = {"mode": "report", "title": resolved["title"], "profile": resolved["profile"]}
    script = _entries(entries(TEMPLATES, resolved, order))[f"{home}/watchdog/serve.sh"]
    box.seen.add(script)
    written = _script(script, box)
    python = Path(home) / "venv/bin/python"
    if _inside(str(python), box):
        with contextlib.suppress(OSError):
            python.parent.mkdir(parents=True, exist_ok=True)
            python.unlink(missing_ok=True)
            python.symlink_to(box.recorder)
            called = box.run(["sh", str(written)])
            assert called.words == [archive_file(home), "watchdog", home]


def _check_supervisor(resolved: Any, box: Sandbox) -> None:
    """What supervisord's own parser reads is what was meant."""
    home = Path(resolved["site"]["home"])
    if not _inside(str(home), box):
        return
    script = f"{home}/serve/{resolved['profile']}/baseline/serve.sh"
    log = f"{home}/logs/baseline.log"
    program = Program("baseline", [script, "--port", "8000"], log, folder=f"{resolved['engine']['home']}/bin",
                      environment={"LABEL": resolved["title"]})  # fmt: skip
    try:  # it looks whether the folders are there
        for folder in (home / "supervisor", Path(log).parent):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    options = ServerOptions()
    options.here = "/"
    options.read_config(io.StringIO(configuration(home / "supervisor", [program])))
    section = options.configroot.supervisord
    assert section.pidfile == f"{home}/supervisor/supervisord.pid"
    listener, one = [group.process_configs[0] for group in section.process_group_configs]
    assert shlex.split(listener.command) == ["/bin/sh", f"{home}/supervisor/leftovers.sh"]
    assert shlex.split(one.command) == [script, "--port", "8000"]
    if "LABEL" in one.environment:  # what supervisord has no way to write is left out
        assert one.environment["LABEL"] == resolved["title"]
    assert one.environment["PATH"].split(":")[0] == f"{resolved['engine']['home']}/bin"


def _check_rental(resolved: Any, box: Sandbox) -> None:
    try:
        body = body_of(resolved, "drafthouse-a-1795000000", 1_795_000_000, 3.0, "https://console.vast.ai")
    except DrafthouseError as error:
        check_refusal(error)
        return
    except ValueError as error:
        assert "4048" in str(error)
        return
    if _new(body["onstart"], box):
        _script(f"#!/bin/bash\n{body['onstart']}", box)
        last = body["onstart"].splitlines()[-1]
        box.run(["bash", "-c", f"{last}wait" if last.endswith("&") else last])
