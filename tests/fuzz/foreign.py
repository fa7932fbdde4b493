"""What others give us: hubs, engines, model files, evidence, a provider's list, what our programs left on a box.

Each is a file of `lay_down`; `Answers` sends the hub's, the engine's and the provider's as they stand at that moment.
"""

from __future__ import annotations

import http.server
import json
import math
import random
import re
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from huggingface_hub import constants

from drafthouse.addons.fleet.front import kept_replicas, replicas_for
from drafthouse.addons.gateway import Replica, Settings, problems
from drafthouse.addons.watchdog.decision import Memory, Rules, Window, decide
from drafthouse.addons.watchdog.journal import STATE, Clocks, State, read_state, write_state
from drafthouse.analysis.break_even import Point
from drafthouse.bench.foreign_traffic import parse_traffic
from drafthouse.bench.spec_metrics import difference, parse_counters
from drafthouse.cli import bench, destroy, evidence, export, fits, model
from drafthouse.core.exit_codes import DONE
from drafthouse.core.plain_text import hidden_character
from drafthouse.core.yaml_documents import yaml_of
from drafthouse.experiment.engine_answers import from_log, server_settings
from drafthouse.export.targets import TARGETS
from drafthouse.profiles import workspace
from drafthouse.profiles.own_folders import own_models
from tests.fuzz.mutations import JSON, TEXT
from tests.unit.report.test_evidence import made

Main = Callable[..., int]
COMMIT = "a" * 40
_CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16", "head_dim": 16, "intermediate_size": 128,
}  # fmt: skip
_TENSORS = {"model.layers.0.q.weight": {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]}}
_METRICS = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 12.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name="m",position="0"} 12.0
vllm:num_requests_running{model_name="m"} 0.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="False"} 1.0
"""
_WORDS = [{"choices": [{"delta": {"content": word}, "index": 0}]} for word in ("one ", "two ", "three ")]
_USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}}
_STREAM = "".join(f"data: {json.dumps(each)}\n\n" for each in (*_WORDS, _USAGE)) + "data: [DONE]\n\n"
#: What answers a path, the first that fits: a file below `served`.
_ROUTES = (
    (r"/api/models/[^/]+/[^/]+/tree/.*", "hub/tree.json"),
    (r"/api/models/.*/auth-check", "hub/auth.json"),
    (r"/api/models/.*", "hub/about.json"),
    (r"/org/model/resolve/[^/]+/config.json", "hub/config.json"),
    (r"/org/model/resolve/[^/]+/model.safetensors", "hub/model.safetensors"),
    (r"/v1/chat/completions", "engine/chat.sse"),
    (r"/v1/models", "engine/models.json"),
    (r"/(metrics|props|server_info|version|tokenize)", r"engine/\1.json"),
    (r"/api/v1/instances/?", "vast/instances.json"),
    (r"/api/v0/users/current/?", "vast/user.json"),
    (r"/api/v0/instances/.*", "vast/instance.json"),
)


def safetensors(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + bytes(8192)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf() -> bytes:
    """The header of a small GGUF file, with a value of each kind that is read."""
    numbers = {
        "block_count": 2, "context_length": 2048, "embedding_length": 64, "attention.head_count": 4,
        "attention.head_count_kv": 2, "rope.dimension_count": 16, "vocab_size": 100, "feed_forward_length": 128,
    }  # fmt: skip
    keys = [_text("general.architecture") + struct.pack("<I", 8) + _text("llama")]
    keys += [_text(f"llama.{name}") + struct.pack("<II", 4, value) for name, value in numbers.items()]
    words = b"".join(_text(f"w{number}") for number in range(100))
    keys.append(_text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 100) + words)
    tensor = _text("blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 64, 64, 1, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + tensor + bytes(8192)


def lay_down(folder: Path) -> None:
    """Write every file of this module, all of them good."""
    header = json.dumps(_TENSORS).encode()
    listing = [
        {"type": "file", "path": name, "size": size, "oid": "b" * 40, "lfs": {"oid": "c" * 64, "size": size}}
        for name, size in (("config.json", len(json.dumps(_CONFIG))), ("model.safetensors", len(safetensors(header))))
    ]
    entry = {"address": "10.0.0.8", "port": 8443, "certificate": "PEM", "served_name": "m"}
    instance = {"id": 31_000_901, "label": "mine", "actual_status": "running", "dph_total": 2.0, "start_date": 1.0}
    files: dict[str, object] = {
        "served/hub/about.json": {"sha": COMMIT, "cardData": {"license": "mit"}, "gated": False},
        "served/hub/auth.json": {},
        "served/hub/tree.json": listing,
        "served/hub/config.json": _CONFIG,
        "served/hub/model.safetensors": safetensors(header),
        "served/engine/chat.sse": _STREAM,
        "served/engine/models.json": {"data": [{"id": "m", "max_model_len": 2048}]},
        "served/engine/metrics.json": _METRICS,
        "served/engine/props.json": {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4},
        "served/engine/server_info.json": {"context_length": 2048, "kv_cache_dtype": "auto"},
        "served/engine/version.json": {"version": "0.32.0"},
        "served/engine/tokenize.json": {"tokens": [1, 2, 3]},
        "served/vast/instances.json": {"success": True, "instances": [instance], "total_instances": 1},
        "served/vast/user.json": {"id": 1, "email": "a@example.com"},
        "served/vast/instance.json": {"success": True, "instances": instance},
        "safe/config.json": _CONFIG,
        "safe/model.safetensors": safetensors(header),
        "safe/model.safetensors.index.json": {"weight_map": dict.fromkeys(_TENSORS, "model.safetensors")},
        "safe/generation_config.json": {"temperature": 0.6},
        "gguf/model.gguf": gguf(),
        "engine.log": "INFO Using V1 Model Runner\nINFO Asynchronous scheduling is enabled\n",
        "replicas.json": {"one": entry, "two": entry},
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = data if isinstance(data, str) else json.dumps(data) if not isinstance(data, bytes) else ""
        path.write_bytes(data if isinstance(data, bytes) else text.encode())
    windows = ((30.0, Window(30.0, 3000, 1500, 1000, 4000, 1.0)),)
    (folder / "watch").mkdir()
    clock: Clocks = {"wall": 1.0, "up": 1.0, "boot": "b"}
    write_state(folder / "watch", State(Memory(seen=(1.0, 2.0, 1.0), windows=windows), clock, "speculative", 1.0))
    made(folder / "evidence")


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers a path with a file of `folder`, as that is now."""

    folder: Path

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        name = next((re.sub(pattern, file, path) for pattern, file in _ROUTES if re.fullmatch(pattern, path)), "none")
        with suppress(OSError):
            if not (self.folder / name).is_file():
                return self.send_error(404)
            body = (self.folder / name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if name.endswith(".sse") else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        return None

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *given: object) -> None:
        pass


# --- the programs -----------------------------------------------------------------------------------------------------


def model_main() -> int:
    """`drafthouse model add`; an entry that it wrote is read by the catalogue, and shown as it stands."""
    local = own_models(workspace.ROOT)
    before = set(local.glob("*.yml"))
    try:
        code = model.main()
        for path in set(local.glob("*.yml")) - before:
            text = path.read_text("utf-8")
            yaml_of(text)
            assert not any(hidden_character(line) for line in text.split("\n")), text
            assert path.stem in workspace.catalog_for().models, f"an entry that nobody can use: {text}"
        return code
    finally:
        for path in set(local.glob("*.yml")) - before:
            path.unlink()


def hub_main() -> int:
    """The same of a hub, whose address is the first word."""
    address = sys.argv.pop(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", address)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        return fits.main() if sys.argv[1] != "add" else model_main()


def bench_main() -> int:
    """`drafthouse bench`; its result is whole, and no number in it is none."""
    code = bench.main()
    result = Path(sys.argv[sys.argv.index("--result") + 1])
    if result.exists():
        json.loads(result.read_text("utf-8"), parse_constant=lambda word: 1 / 0)
        result.unlink()
    return code


def vast_main() -> int:
    """`drafthouse destroy --list` at the provider whose address is the first word."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAST_URL", sys.argv.pop(1))
        return destroy.main()


def counters_main() -> int:
    """What bench, watchdog and experiment make of an engine's counters and log."""
    text = Path(sys.argv[1]).read_bytes().decode("utf-8", "replace")
    before, after = parse_counters(_METRICS), parse_counters(text)
    moved = difference(before, after)
    if moved is not None:
        assert 0 <= (moved["accepted_tokens"] or 0) <= (moved["draft_tokens"] or math.inf)
        assert all(math.isfinite(value) for value in parse_traffic(text).values() if isinstance(value, float))
    server_settings({}, {}, text)
    from_log(text)
    return DONE


def state_main() -> int:
    """What the watchdog goes on with after a restart."""
    state = read_state(Path(sys.argv[1]).parent)
    if state is not None:
        decide(Rules(), [Point(1.0, 0.2, 0.1, 0.3, 3)], 3, state.memory, Window(60.0, 3000, 1500, 1000, 4000, 1.0))
    return DONE


def front_main() -> int:
    """What a fleet's front makes of the boxes that it had."""
    kept = kept_replicas(Path(sys.argv[1]).read_bytes().decode("utf-8", "replace"))
    found = replicas_for(["one", "two"], {}, kept)
    replicas = tuple(Replica(name, one["address"], one["port"], one["certificate"]) for name, one in found.items())
    for problem in problems(Settings("/opt/x", 8443, "127.0.0.1:8000", "/opt/x/key", replicas=replicas)):
        print(problem)
    return DONE


def case(rng: random.Random, folder: Path, address: str, reports: Path) -> tuple[str, Path, str, Main, list[object]]:
    """Whose file it is, the file, its form, and the program that reads it."""
    served = folder / "served"
    ask: list[object] = ["--base-url", address, "--model", "m", "--num-prompts", "2", "--output-tokens", "8"]
    ask += ["--timeout", "2", "--result", folder / "result.json"]
    order: list[object] = ["rtx6000-qwen-eagle3", "--to", rng.choice(sorted(TARGETS)), "--reports", reports]
    verb = rng.choice((("add", "org/model"), ("org/model",)))
    ways: dict[str, tuple[Sequence[Path], Main, list[object]]] = {
        "files": (sorted((folder / "safe").iterdir()), model_main, ["add", folder / "safe"]),
        "gguf": ([folder / "gguf/model.gguf"], model_main, ["add", folder / "gguf/model.gguf"]),
        "hub": (sorted((served / "hub").iterdir()), hub_main, [address, *verb]),
        "engine": (sorted((served / "engine").iterdir()), bench_main, ask),
        "vast": (sorted((served / "vast").iterdir()), vast_main, [address, "--list"]),
        "metrics": ([served / "engine/metrics.json", folder / "engine.log"], counters_main, []),
        "watchdog": ([folder / "watch" / STATE], state_main, []),
        "front": ([folder / "replicas.json"], front_main, []),
        "evidence": (sorted((folder / "evidence").glob("20*/*.json")), evidence.main, ["check"]),
        "export": (sorted(reports.rglob("report.json")), export.main, order),
    }
    name = rng.choice(list(ways))
    files, main, words = ways[name]
    file = rng.choice(files)
    if len(words) < 2:
        words = [*words, file if not words else file.parent]
    return name, file, JSON if file.suffix == ".json" and file.name != "metrics.json" else TEXT, main, words
