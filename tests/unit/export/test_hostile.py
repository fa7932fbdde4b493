"""No text of a profile, an entry or a report is more than text in an export.

Each string is put into every field at once. The file then has to have the same structure as without
it, and what the tool starts of it has to get the string byte for byte, and to start nothing else.
"""

from __future__ import annotations

import copy
import dataclasses
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.export import quoting
from drafthouse.export.order import order_of
from drafthouse.export.targets import TARGETS, exported
from drafthouse.profiles.workspace import ROOT
from tests.support.export_reading import KEY, READERS, Started, compose_filled, dstack_filled, kubernetes_filled
from tests.support.hostile_exports import HOSTILE, IMPOSSIBLE, NOT_IN_A_UNIT, order_with, profile_with
from tests.support.ports import free_port

DIGEST = "sha256:" + "ab" * 32


class _Engine(http.server.BaseHTTPRequestHandler):
    """Completes for those who have the key, and keeps what it was sent."""

    asked: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200 if self.headers["Authorization"] == f"Bearer {KEY}" else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def engine() -> Iterator[int]:
    port = free_port()
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), _Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield port
        server.shutdown()


STAND_IN = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" >> "${0%/*}/calls"
printf 'end\\0' >> "${0%/*}/calls"
[ "${0##*/}" = hf ] || env -0 > "${0%/*}/environment"
"""


class Box:
    """A folder with stand-ins for the programs that an export starts; they keep what they get."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder / "work", folder / "bin"
        self.folder.mkdir()
        self.programs.mkdir()
        for name in ("hf", "curl", "vllm"):
            path = self.programs / name
            path.write_text(STAND_IN)
            path.chmod(0o755)

    def run(self, argv: list[str], environment: dict[str, str]) -> int:
        own = {**environment, "PATH": f"{self.programs}:/usr/bin:/bin", "HOME": str(self.folder)}
        done = subprocess.run(
            argv, cwd=self.folder, env=own, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
        assert not list(self.folder.rglob("*")), "something was executed"
        return done.returncode

    def calls(self) -> list[list[str]]:
        """Every call of a stand-in, as its words; each call ends with the word `end`."""
        path = self.programs / "calls"
        words = path.read_bytes().decode("utf-8").split("\0")[:-1] if path.exists() else []
        path.unlink(missing_ok=True)
        found: list[list[str]] = [[]]
        for word in words:
            if word == "end":
                found.append([])
            else:
                found[-1].append(word)
        return found[:-1]

    def environment(self) -> dict[str, str]:
        words = (self.programs / "environment").read_bytes().decode("utf-8").split("\0")
        return dict(word.split("=", 1) for word in words if word)


@cache
def usual(target: str) -> Started:
    return READERS[target](exported(TARGETS[target], order_with("usual", target)))


@pytest.mark.processes
@pytest.mark.parametrize("text", HOSTILE, ids=repr)
@pytest.mark.parametrize("target", TARGETS)
def test_it_is_only_text(target: str, text: str, tmp_path: Path, engine: int) -> None:
    box = Box(tmp_path)
    key_file = tmp_path / "the key"
    key_file.write_text(KEY + "\n")
    order = order_with(text, target, key_file, engine)
    found = READERS[target](exported(TARGETS[target], order))
    # The file has what it always has, and nothing beside it.
    assert found.paths == usual(target).paths
    assert found.image == order.image
    labels = {f"drafthouse.{name}": value for name, value in found.labels.items()}
    if target == "dstack":  # which takes a few characters alone
        assert set(labels) == set(order.labels)
    else:
        assert labels == order.labels
    # The weights are fetched by the commands of the order, and by no other.
    assert box.run(found.downloads, {}) == 0
    assert box.calls() == order.downloads
    # The engine gets its arguments and variables.
    assert box.run(found.start, found.environment) == 0
    argv = order.argv
    if target == "production-stack":  # which has them in an order of its own, and says prefix caching either way
        own = ["--host", "0.0.0.0", "--port", str(engine)]
        rest = [word for flag in order.flags[1:] if flag[0] not in own for word in flag]
        argv = [*argv[:3], *own, "--enable-prefix-caching", *rest]
    assert box.calls()[-1] == argv
    assert text in argv
    got = box.environment()
    for name, value in order.environment.items():
        assert got[name] == value
    if order.keyed:
        assert got["VLLM_API_KEY"] == KEY
    # The probe asks for the model by its name.
    if found.probe:
        _Engine.asked.clear()
        assert box.run(found.probe, {"VLLM_API_KEY": KEY}) == 0
        (body,) = _Engine.asked
        assert json.loads(body)["model"] == text
        assert box.run(found.probe, {"VLLM_API_KEY": "another"}) == (1 if target != "compose" else 0)
    elif target != "production-stack":
        assert json.loads(found.body or "")["model"] == text
    else:
        assert found.body is None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", IMPOSSIBLE, ids=ascii)
def test_what_no_argument_can_be_is_refused(target: str, text: str) -> None:
    with pytest.raises(DrafthouseError, match="wrong-format"):
        exported(TARGETS[target], order_with(text, target))


@pytest.mark.parametrize("text", NOT_IN_A_UNIT, ids=repr)
def test_what_quadlet_would_not_hand_on_is_refused(text: str) -> None:
    """An empty word ends what Quadlet reads, and a lone `;` the command that systemd starts."""
    order = order_with("usual", "quadlet")
    order = dataclasses.replace(order, flags=[*order.flags, ["--odd", text]])
    with pytest.raises(DrafthouseError, match="export-unsupported"):
        exported(TARGETS["quadlet"], order)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["A B", "A=1", "$(touch PWN)", "A\nB", "", "1A", 'A"'])
def test_a_variable_that_is_no_name_is_refused(target: str, name: str) -> None:
    data = profile_with("usual", TARGETS[target].models_dir, Path("/key"), 8000)
    data["arms"]["speculative"]["environment"][name] = "x"
    with pytest.raises(DrafthouseError, match="wrong-format"):
        exported(TARGETS[target], order_of(data, "speculative", keyed=TARGETS[target].keyed))


@pytest.mark.parametrize("text", [text for text in (*HOSTILE, *IMPOSSIBLE) if not text.isalnum()], ids=ascii)
def test_an_image_is_a_name_and_nothing_else(text: str) -> None:
    """A digest in pins.json, an image of the catalogue, and one that somebody names."""
    text = f" {text}"
    data = profile_with("usual", "/models", Path("/key"), 8000)
    changed: list[tuple[Any, str | None]] = [({**data, "image_digest": f"sha256:{'ab' * 32}{text}"}, None)]
    changed.append((data, f"vllm/vllm-openai@{DIGEST}{text}"))
    catalogued = copy.deepcopy(data)
    catalogued["arms"]["speculative"]["container"]["image"] = f"{text}/x"
    changed.append((catalogued, None))
    for profile, image in changed:
        with pytest.raises(DrafthouseError, match="wrong-format"):
            order_of(profile, "speculative", image=image)


# --- the mechanism


def test_a_string_without_a_filter_is_never_printed(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    cases = ["{{ x }}", "{{ 'literal' }}", "{{ x | yaml ~ 'y' }}", "{{ [x] }}", "{{ none }}", "{{ true }}", "{{ 1.5 }}"]
    for source in [*cases, "{% macro m() %}a{% endmacro %}{{ m() }}"]:
        (folder / "skypilot.yaml.j2").write_text(source)
        quoting.template.cache_clear()
        with pytest.raises(TypeError, match="without a quoting filter"):
            quoting.template(tmp_path, "skypilot.yaml").render(x="text")
    (folder / "compose.yaml.j2").write_text("{{ x | yaml }} {{ 3 }}")
    assert quoting.template(tmp_path, "compose.yaml").render(x="text") == '"text" 3'


@pytest.mark.parametrize("source", ["{{ x | yaml }}", "{{ x | upper }}", "{{ x | safe }}", "{{ x | string }}"])
def test_a_filter_of_another_place_is_unknown(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "x.sh.j2").write_text(source)
    with pytest.raises(jinja2.TemplateError, match="No filter named"):
        quoting.template(tmp_path, "x.sh")


def test_every_template_belongs_to_a_place() -> None:
    names = {path.name.removesuffix(".j2") for path in (ROOT / "templates" / "export").iterdir()}
    assert {f"{target.name}.{target.suffix}" for target in TARGETS.values()} <= names
    for name in names:
        assert quoting.template(ROOT / "templates", name)


@pytest.mark.parametrize("text", [*HOSTILE, ""], ids=repr)
def test_yaml_is_read_back_as_it_was(text: str) -> None:
    for indent in (2, 9):
        source = f"a:\n{' ' * (indent - 1)}b: {quoting.yaml_value(text, indent)}\nc: 1\n"
        assert yaml.safe_load(source) == {"a": {"b": text}, "c": 1}
    assert yaml.safe_load(f"[{quoting.yaml_value(text)}]") == [text]
    words = [text, "x", text]
    assert yaml.safe_load(f"a:{quoting.yaml_value(words, 2)}\nb: 1\n") == {"a": words, "b": 1}
    assert yaml.safe_load(f"a:{quoting.yaml_value({text: text}, 2)}\n") == {"a": {text: text}}
    doubled = yaml.safe_load(f"[{quoting.yaml_doubled(text)}]")[0]
    assert compose_filled(doubled) == text
    assert kubernetes_filled(doubled, {"VLLM_API_KEY": KEY}) == text
    assert dstack_filled(quoting.shell_word(text)) == quoting.shell_word(text)
