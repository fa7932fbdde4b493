"""Every export says the arm's own command, and nothing that was changed in it passes."""

from __future__ import annotations

import copy
import http.server
import json
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.export import gpus
from drafthouse.export.base import differing
from drafthouse.export.order import FETCH, SECRET, Order
from drafthouse.export.quadlet import words, words_of
from drafthouse.export.targets import TARGETS, exported, order_of, replicas_of, said_arm, site_of
from drafthouse.export.text import shell_argv, shell_command
from drafthouse.profiles.workspace import resolved_profile
from tests.support import exports
from tests.support.ports import free_port
from tests.support.rendered import PROFILES

EACH = [
    (profile, target, arm) for target in TARGETS for profile in exports.profiles_for(target) for arm in exports.ARMS
]
DIGEST = "sha256:" + "ab" * 32


def script_of(order: Order) -> str:
    (script,) = (file["content"] for file in order.built["files"] if file["path"] == "serve.sh")
    return str(script)


def rendered(order: Order) -> list[str]:
    """The command that `drafthouse render` writes into the arm's script, listening where a container must."""
    tail = script_of(order).split("\nexec ", 1)[1].replace(" \\\n", " ")
    argv = [word for word in shlex.split(tail) if word != "$@"]
    argv[argv.index("--host") + 1] = "0.0.0.0"
    return argv


def by_flag(argv: list[str]) -> Counter[tuple[str, ...]]:
    """A command as its flags with their values, in no order."""
    flags: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not flags:
            flags.append([])
        flags[-1].append(word)
    return Counter(tuple(flag) for flag in flags)


@pytest.mark.parametrize(("profile", "target", "arm"), EACH)
def test_the_file_starts_what_render_shows(profile: str, target: str, arm: str) -> None:
    order = exports.order(profile, target, arm)
    argv = TARGETS[target].read(exports.text(profile, target, arm)).argv
    key_file = order.profile["key_file"]
    if profile == "h100-llama33-sglang-eagle3" and target != "dstack":
        # Its key is told inside of the process: by the arm's own script, whole.
        assert argv == ["/bin/bash", "-c", script_of(order), "serve.sh", "--host", "0.0.0.0"]
        return
    wanted = rendered(order)
    if target == "dstack":  # asks for its own token, so the engine has no key
        if "$start" in wanted:
            at = wanted.index("-c")
            wanted[at : at + 4] = ["-m", "sglang.launch_server"]
        if key_file in wanted:
            at = wanted.index(key_file)
            del wanted[at - 1 : at + 1]
    if target == "production-stack":
        # The chart says prefix caching either way; vLLM has it on where the arm says nothing.
        says = {"--no-enable-prefix-caching", "--enable-prefix-caching"} & set(wanted)
        assert by_flag(argv) == by_flag(wanted if says else [*wanted, "--enable-prefix-caching"])
    else:
        assert argv == wanted
    assert TARGETS[target].problems(exports.text(profile, target, arm), order, "x") == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_exported_or_refused_with_a_reason(profile: str, target: str) -> None:
    one = TARGETS[target]
    data = exports.resolved(profile)
    try:
        text = exported(one, order_of(data, "speculative", one))
    except DrafthouseError as error:
        assert {problem.code for problem in error.problems} <= {"export-unsupported", "export-unguarded", "export-gpu"}
    else:
        assert "drafthouse" in text


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_survive_whatever_stands_in_them(target: str) -> None:
    data = copy.deepcopy(exports.resolved(exports.QWEN, TARGETS[target].models_dir))
    odd = [
        "$HOME",
        "$$(HOSTNAME)",
        "$(x)",
        "50 %s",
        '{"a": "it\'s \\"b\\" \\\\ {{ c }}"}',
        "two\nlines",
        "",
        "-",
        "ünï",
    ]
    data["arms"]["speculative"]["flags"] += [["--odd", word] for word in odd]
    order = order_of(data, "speculative", TARGETS[target])
    argv = TARGETS[target].read(exported(TARGETS[target], order)).argv
    assert [argv[n + 1] for n, word in enumerate(argv) if word == "--odd"] == odd


def test_a_key_is_a_reference_everywhere() -> None:
    for profile, target, arm in EACH:
        text = exports.text(profile, target, arm)
        assert SECRET in text or target in ("skypilot", "dstack")
        assert "VLLM_API_KEY=sk" not in text
    sky = yaml.safe_load(exports.text(exports.QWEN, "skypilot"))
    assert sky["secrets"] == {"DRAFTHOUSE_API_KEY": None}
    assert not any("KEY" in name for name in sky["envs"])
    dstack = yaml.safe_load(exports.text(exports.QWEN, "dstack"))
    assert dstack["auth"] is True
    assert not any("KEY" in name for name in dstack["env"])


def test_kubernetes_has_all_its_objects() -> None:
    data: Any = TARGETS["kubernetes"].read(exports.text(exports.QWEN, "kubernetes")).data
    assert set(data) == {
        *("PersistentVolumeClaim", "Deployment", "Service", "PodDisruptionBudget", "ServiceMonitor"),
    }
    pod = data["Deployment"]["spec"]["template"]["spec"]
    (engine,), (weights,) = pod["containers"], pod["initContainers"]
    assert engine["readinessProbe"]["exec"]["command"] == exports.order(exports.QWEN, "kubernetes").probe(
        "$VLLM_API_KEY"
    )
    assert "9216db5781bf21249d130ec9da846c4624c16137" in weights["args"][0]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition"}
    assert data["Service"]["spec"]["type"] == "ClusterIP"
    # More pods than one read the same volume.
    several = exported(TARGETS["kubernetes"], exports.order(exports.QWEN, "kubernetes", replicas=(2, 2)))
    more: Any = TARGETS["kubernetes"].read(several).data
    assert more["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    # An engine whose figures ask for the key is scraped with it.
    llama: Any = TARGETS["kubernetes"].read(exports.text(exports.OTHERS[1], "kubernetes")).data
    asks = exports.resolved(exports.OTHERS[1])["engine"]["metrics"]["key"]
    assert ("authorization" in llama["ServiceMonitor"]["spec"]["endpoints"][0]) is asks


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_is_by_digest_where_one_is_known(target: str) -> None:
    assert "Image: by tag" in exports.text(exports.QWEN, target)
    data: Any = {**exports.resolved(exports.QWEN, TARGETS[target].models_dir), "image_digest": DIGEST}
    text = exported(TARGETS[target], order_of(data, "speculative", TARGETS[target]))
    assert "Image: by digest" in text
    assert f"v0.32.0@{DIGEST}" in text
    named = exported(
        TARGETS[target], order_of(data, "speculative", TARGETS[target], image=f"mine.example:5000/v@{DIGEST}")
    )
    assert "Image: by digest" in named
    if target == "production-stack":
        (model,) = yaml.safe_load(named)["servingEngineSpec"]["modelSpec"]
        assert f"{model['repository']}:{model['tag']}" == f"mine.example:5000/v@{DIGEST}"


def test_a_split_over_gpus_has_the_charts_own_key_for_it() -> None:
    """With it the chart mounts shared memory, which tensor parallelism needs."""
    values = yaml.safe_load(exports.text("a100x4-llama3-draft8b", "production-stack"))
    (model,) = values["servingEngineSpec"]["modelSpec"]
    assert model["vllmConfig"]["tensorParallelSize"] == model["requestGPU"] == 4
    assert "--tensor-parallel-size" not in model["vllmConfig"]["extraArgs"]


def test_replicas_scale_where_the_tool_scales_them() -> None:
    sky = yaml.safe_load(exports.text(exports.QWEN, "skypilot"))["service"]["replica_policy"]
    assert sky == {"min_replicas": 1, "max_replicas": 4, "target_qps_per_replica": 1.0}
    fixed = yaml.safe_load(exported(TARGETS["dstack"], exports.order(exports.QWEN, "dstack", replicas=(2, 2))))
    assert fixed["replicas"] == 2
    assert "scaling" not in fixed


@pytest.mark.parametrize("text", ["0", "4..1", "1..", "..", "x", "-1", "1..2..3", "1.5"])
def test_replicas_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(DrafthouseError, match="invalid-option"):
        replicas_of(text, TARGETS["dstack"])


def test_a_gpu_without_a_name_is_refused() -> None:
    hardware: Any = exports.resolved(exports.QWEN)["hardware"]
    for tool in ("skypilot", "dstack", "product"):
        assert gpus.spelled(hardware, tool) in gpus.names(tool)
        with pytest.raises(DrafthouseError, match="export-gpu"):
            gpus.spelled(cast("Any", {**hardware, "gpu_names": ["H1000"]}), tool)
    with pytest.raises(DrafthouseError, match="export-gpu"):
        exported(TARGETS["skypilot"], exports.order("dgx-spark-nemotron35-dspark", "skypilot"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text", ["", "[]", "x: [", "a: 1\n", "null\n", "\x00", "- a\n- b\n", "services: {engine: 3}\n"]
)
def test_a_file_of_something_else_is_refused(target: str, text: str) -> None:
    problems = TARGETS[target].problems(text, exports.order(exports.QWEN, target), "a file")
    assert problems
    assert {problem.code for problem in problems} <= {"export-malformed", "file-malformed"}


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_the_users_own_may_change(target: str) -> None:
    text = exports.text(exports.QWEN, target)
    changes = {
        "skypilot": ("disk_size: 104", "disk_size: 500\n  cloud: aws"),
        "dstack": ("replicas: 1..4", "replicas: 2..8"),
        "kubernetes": ("  replicas: 1", "  replicas: 5"),
        "production-stack": ("pvcStorage: 71Gi", "pvcStorage: 200Gi\n      storageClass: fast"),
        "compose": ("restart: unless-stopped", "restart: always"),
        "quadlet": ("Restart=on-failure", "Restart=always"),
    }
    old, new = changes[target]
    assert old in text
    assert TARGETS[target].problems(text.replace(old, new), exports.order(exports.QWEN, target), "x") == []


def test_the_arm_is_read_from_the_file() -> None:
    for profile, target, arm in EACH:
        assert said_arm(exports.text(profile, target, arm)) == arm
    assert said_arm("nothing") is None


def test_differences_go_by_name_and_not_by_place() -> None:
    old: Any = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "words": ["x", "y"], "gone": None}
    new: Any = {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}], "words": ["x"], "more": True}
    assert list(differing(new, old)) == [
        ("env.A.value", "3", "1"),
        ("words", ["x"], ["x", "y"]),
        ("gone", None, None),
        ("more", True, None),
    ]


@pytest.mark.parametrize(
    "argv", [["a"], ["a", "--b", "c d", "--e"], ["/bin/bash", "-c", "x\nexec y \\\n  z\n", "--h", "'"]]
)
def test_commands_are_read_back_as_they_were(argv: list[str]) -> None:
    assert shell_argv(f"set -e\n{shell_command(argv)}") == ("\nset -e", argv)
    assert words_of(words(argv)) == argv


def test_a_site_of_every_target_is_one_that_profiles_take() -> None:
    for target in TARGETS.values():
        found = resolved_profile(exports.QWEN, dict(site_of(target)))
        assert found["arms"]["speculative"]["container"]


# --- what runs in the container, run here


class _Engine(http.server.BaseHTTPRequestHandler):
    """Completes for those who have the key."""

    asked: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        status = 200 if self.headers["Authorization"] == "Bearer the-key" and self.path == "/v1/completions" else 401
        self.asked.append(json.loads(said))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[int]:
    port = free_port()
    with http.server.HTTPServer(("127.0.0.1", port), _Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield port
        server.shutdown()


@pytest.mark.processes
def test_the_probe_is_a_completion_with_the_key(engine: int, tmp_path: Path) -> None:
    order = exports.order(exports.QWEN, "kubernetes")
    site = {**order.profile["site"], "port": engine}
    here = Order({**order.profile, "site": site}, order.arm, order.image)  # type: ignore[typeddict-item]
    (tmp_path / "key").write_text("the-key\n")
    for key in ("$VLLM_API_KEY", f"$(< {tmp_path}/key)"):
        done = subprocess.run(here.probe(key), env={"VLLM_API_KEY": "the-key"}, check=False)
        assert done.returncode == 0
    assert _Engine.asked[-1] == here.completion
    assert subprocess.run(here.probe("$VLLM_API_KEY"), env={"VLLM_API_KEY": "another"}, check=False).returncode == 1
    nobody = Order({**order.profile, "site": {**site, "port": free_port()}}, order.arm, order.image)  # type: ignore[typeddict-item]
    assert subprocess.run(nobody.probe("x"), stderr=subprocess.DEVNULL, check=False).returncode == 1


@pytest.mark.processes
def test_scripts_are_bash(tmp_path: Path) -> None:
    for profile in exports.profiles_for("skypilot"):
        data = yaml.safe_load(exports.text(profile, "skypilot"))
        for part in ("setup", "run"):
            subprocess.run(["bash", "-n", "-c", data[part]], check=True)


@pytest.mark.processes
@pytest.mark.parametrize("profile", [exports.QWEN, exports.OTHERS[1]])
def test_compose_gives_the_engine_its_key_and_its_words(profile: str, tmp_path: Path) -> None:
    """The entrypoint runs as Compose would start it, with a program that tells what it was given."""
    order = exports.order(profile, "compose")
    service = yaml.safe_load(exports.text(profile, "compose"))["services"]["engine"]
    (tmp_path / "key").write_text("the-key\n")
    tell = tmp_path / order.argv()[0]
    tell.write_text('#!/bin/bash\nprintf \'%s\\n\' "$VLLM_API_KEY" "$@"\n')
    tell.chmod(0o755)
    words = [str(word).replace("$$", "$") for word in [*service["entrypoint"], *service["command"]]]
    words = [word.replace(f"(< {order.profile['key_file']})", f"(< {tmp_path}/key)") for word in words]
    own = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=own)
    key, *argv = done.stdout.splitlines()
    assert key == ("the-key" if profile == exports.QWEN else "")
    assert argv == order.argv()[1:]


@pytest.mark.processes
def test_one_file_is_fetched_once_and_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "weights.gguf", tmp_path / "models" / "a b" / "weights.gguf"
    source.write_bytes(b"GGUF" * 1000)
    script = f"set -euo pipefail\n{FETCH}\n{shlex.join(['fetch', str(target), source.as_uri()])}"
    assert subprocess.run(["bash", "-c", f"{script}-missing"], check=False, capture_output=True).returncode
    assert not target.exists()
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    assert target.read_bytes() == b"GGUF" * 1000
    source.unlink()  # what is there is not asked for again
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    assert [path.name for path in target.parent.iterdir()] == ["weights.gguf"]
