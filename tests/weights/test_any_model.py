"""`drafthouse model add` against the tests' hub: the right entry or the right refusal, from few bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.models.entry import NewEntry, made_entry
from drafthouse.models.first_use import add_missing
from drafthouse.models.repository import ModelName, read_model
from drafthouse.models.tensor_totals import TensorKind
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.model_names import find_model
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from drafthouse.weights.fetch_plan import Wish
from drafthouse.weights.inspect import check_model
from drafthouse.weights.snapshot import place_snapshots
from tests.fakes.hub_contents import Begun, Content
from tests.fakes.hub_server import ALWAYS, COMMIT, Fault, Hub, hub_server
from tests.support.checkpoints import llama_like, tensor
from tests.support.refusals import refuses

CONFIGS = ROOT / "tests" / "real_engines" / "model_configs"
HOUSE = load_catalog(ROOT)
QWEN: dict[str, Any] = json.loads((CONFIGS / "Qwen3-32B.json").read_text("utf-8"))
LITTLE: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
    "max_position_embeddings": 100,
}  # fmt: skip


def shard(tensors: Mapping[str, TensorKind]) -> Begun:
    """A file with the header of these tensors and zeros behind it, as large as theirs."""
    entries, at = {}, 0
    for name, one in tensors.items():
        entries[name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, at + one.size]}
        at += one.size
    text = json.dumps(entries).encode()
    start = struct.pack("<Q", len(text)) + text
    return Begun(start, len(start) + at)


def files_of(
    config: Mapping[str, Any], tensors: Mapping[str, TensorKind], shards: int = 1, **more: Content | bytes
) -> dict[str, Content | bytes]:
    """A repository: a configuration, and the tensors dealt to so many shards."""
    names = list(tensors)
    dealt = [{name: tensors[name] for name in names[number::shards]} for number in range(shards)]
    if shards == 1:
        weights: dict[str, Content | bytes] = {"model.safetensors": shard(dealt[0])}
    else:
        weights = {f"model-{n:05}-of-{shards:05}.safetensors": shard(one) for n, one in enumerate(dealt, 1)}
    return {"config.json": json.dumps(config).encode(), **weights, **more}


def added(hub: Hub, word: str | None = None, token: str | None = None, head_for: str | None = None) -> NewEntry:
    """The entry that the hub's repository gives."""
    found = read_model(ModelName.of(word or hub.repo), token=token, endpoint=hub.url)
    return made_entry(found, HOUSE.models, head_for=head_for)


def test_a_model_of_65_gb_costs_3_mb_and_is_the_catalogues_entry() -> None:
    more = {"generation_config.json": b'{"temperature": 0.6}', "tokenizer.json": b"{}"}
    with hub_server(Hub(files_of(QWEN, llama_like(QWEN), shards=17, **more), repo="Qwen/Qwen3-32B")) as hub:
        made = added(hub)
    ours: Any = HOUSE.models["qwen3-32b"]
    entry: Any = made.entry
    same = ("kind", "format", "folder", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "context",
            "tokenizer", "temperature", "served_name", "name")  # fmt: skip
    assert {key: entry[key] for key in same} == {key: ours[key] for key in same}
    assert entry["weight_bytes"] == pytest.approx(ours["weight_bytes"], rel=1e-3)
    assert entry["parameters"] == pytest.approx(ours["parameters"], rel=1e-4)
    assert entry["source"] == {"hub": {"repo": "Qwen/Qwen3-32B", "revision": COMMIT}}
    assert hub.sent < 3_000_000


@pytest.mark.parametrize(("mtp", "claims"), [(True, 1), (False, 1), (False, 0), (True, 0)])
def test_a_head_inside_is_told_by_its_tensors_and_not_by_the_configuration(mtp: bool, claims: int) -> None:
    config = {**LITTLE, "num_nextn_predict_layers": claims} if claims else LITTLE
    with hub_server(Hub(files_of(config, llama_like(LITTLE, mtp=mtp)))) as hub:
        made = added(hub)
    if mtp:
        head = made.entry["builtin_head"]
        assert (head["layers"], head["tensors"]) == (1, ["mtp.*"])
    else:
        assert "builtin_head" not in made.entry
    assert any("cannot speculate by itself" in note for note in made.notes) == (claims == 1 and not mtp)


@pytest.mark.parametrize(
    ("more", "chats"),
    [
        ({}, False),
        ({"tokenizer_config.json": b"{}"}, False),
        ({"tokenizer_config.json": b'{"chat_template": "{{ messages }}"}'}, True),
        ({"chat_template.jinja": b"x"}, True),
    ],
)
def test_a_base_model_is_told_by_its_missing_template(more: dict[str, Any], chats: bool) -> None:
    with hub_server(Hub(files_of(LITTLE, llama_like(LITTLE), **more))) as hub:
        made = added(hub)
    assert any("no chat template" in note for note in made.notes) != chats


@pytest.mark.parametrize("name", ["mtp.fc.weight", "mtp.fc.weight_packed", "mtp.fc.qweight"])
def test_a_head_that_an_export_packed_is_none(name: str) -> None:
    tensors = {key: one for key, one in llama_like(LITTLE, mtp=True).items() if not key.startswith("mtp.fc")}
    packed = {name: tensor(8, 8, dtype="I32" if "qweight" in name else "U8")}
    with hub_server(Hub(files_of(LITTLE, {**tensors, **packed}))) as hub:
        made = added(hub)
    assert "builtin_head" not in made.entry
    assert any(f"{name} of its MTP head is in 4 bits" in note for note in made.notes)


def test_a_mixture_of_experts_reads_a_share() -> None:
    config = {**LITTLE, "num_experts": 8, "num_experts_per_tok": 2}
    routed = {f"model.layers.0.mlp.experts.{n}.up_proj.weight": tensor(100, 100) for n in range(8)}
    with hub_server(Hub(files_of(config, {**llama_like(LITTLE), **routed}))) as hub:
        entry = added(hub).entry
    assert entry["read_bytes"] < entry["weight_bytes"] - 5 * 100 * 100 * 2


def test_a_hybrid_says_how_many_layers_cache() -> None:
    config = {**LITTLE, "layer_types": ["linear_attention", "full_attention"]}
    with hub_server(Hub(files_of(config, llama_like(LITTLE)))) as hub:
        assert added(hub).entry["kv_layers"] == 1


def test_a_gated_repository_without_the_licence_is_refused_and_with_it_read() -> None:
    with hub_server(Hub(files_of(LITTLE, llama_like(LITTLE)), gated=True)) as hub:
        with pytest.raises(DrafthouseError) as error:
            added(hub)
        entry = added(hub, token=hub.right).entry
    assert error.value.problems[0].code == "hub-gated"
    assert entry["gated"] is True


@pytest.mark.parametrize(
    ("files", "code", "says"),
    [
        ({"model.safetensors": shard(llama_like(LITTLE))}, "model-shape-unknown", "no config.json"),
        ({"config.json": b"{", "model.safetensors": b""}, "model-shape-unknown", "does not parse as JSON"),
        ({"config.json": b"[]"}, "model-shape-unknown", "not a JSON object"),
        ({"config.json": json.dumps(LITTLE).encode(), "pytorch_model.bin": b"x"}, "no-weights", "safetensors"),
        ({"config.json": json.dumps(LITTLE).encode(), "model.safetensors": b"\1"}, "weights-damaged", "1 bytes"),
        (files_of({"architectures": ["HydraModel"]}, llama_like(LITTLE)), "model-shape-unknown", "HydraModel"),
        (files_of({}, llama_like(LITTLE)), "model-shape-unknown", "hidden_size"),
    ],
)
def test_what_cannot_be_read_is_refused(files: dict[str, Content | bytes], code: str, says: str) -> None:
    with hub_server(Hub(files)) as hub, pytest.raises(DrafthouseError) as error:
        added(hub)
    (problem,) = error.value.problems
    assert problem.code == code
    assert says in problem.found


def test_a_head_of_speculators_names_its_target() -> None:
    config = json.loads((CONFIGS / "Qwen3-32B-speculator.eagle3.json").read_text("utf-8"))
    tensors = {"layers.0.mlp.up_proj.weight": tensor(100, 100), "lm_head.weight": tensor(32000, 5120)}
    with hub_server(Hub(files_of(config, tensors), repo="RedHatAI/Qwen3-32B-speculator.eagle3")) as hub:
        entry: Any = added(hub).entry
    ours: Any = HOUSE.models["qwen3-32b-eagle3"]
    same = ("kind", "head_for", "head_method", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "context",
            "tokenizer")  # fmt: skip
    assert {key: entry[key] for key in same} == {key: ours[key] for key in same}


@pytest.mark.parametrize(
    ("head_for", "hidden", "says"),
    [
        (None, 5120, "that does not name its target"),
        ("org/unknown", 5120, "which is not in the catalogue"),
        ("Qwen/Qwen3-32B", 4096, "reads 4096 values"),
    ],
)
def test_a_head_for_another_model_is_refused(head_for: str | None, hidden: int, says: str) -> None:
    config = {**LITTLE, "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": hidden, "num_attention_heads": 32}
    with hub_server(Hub(files_of(config, llama_like(LITTLE)))) as hub, pytest.raises(DrafthouseError) as error:
        added(hub, head_for=head_for)
    (problem,) = error.value.problems
    assert problem.code == "draft-of-another-target"
    assert says in problem.found


def test_a_gguf_file_is_read_by_its_head(tmp_path: Path) -> None:
    path = tmp_path / "m-Q8_0.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(3)
    writer.add_uint32("llama.nextn_predict_layers", 1)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_context_length(4096)
    writer.add_array("tokenizer.ggml.tokens", [f"t{number}" for number in range(50)])
    for name in ("token_embd.weight", "blk.0.attn_q.weight", "blk.2.nextn.eh_proj.weight", "blk.2.attn_q.weight"):
        writer.add_tensor(name, np.zeros((2, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with hub_server(Hub({path.name: path.read_bytes(), "other.gguf": b"x"}, repo="org/m-GGUF")) as hub:
        made = added(hub, f"org/m-GGUF:{path.name}")
        with pytest.raises(DrafthouseError) as error:
            added(hub, "org/m-GGUF:none.gguf")
    entry: Any = made.entry
    assert made.id == "m-q8_0"
    assert (entry["format"], entry["file"], entry["layers"], entry["vocab"]) == ("gguf", path.name, 2, 50)
    assert entry["source"]["hub"]["allow"] == [path.name]
    assert entry["weight_bytes"] == path.stat().st_size
    assert entry["parameters"] == 4 * 64
    assert entry["builtin_head"]["weight_bytes"] == 2 * 64 * 2
    assert error.value.problems[0].code == "no-weights"
    here = made_entry(read_model(ModelName.of(str(path)), token=None), HOUSE.models)
    assert here.entry["source"] == {"path": str(path)}
    assert (here.entry["layers"], here.entry["parameters"]) == (entry["layers"], entry["parameters"])


def made_gguf(path: Path, **numbers: int) -> NewEntry:
    """The entry of a GGUF file with one tensor and these keys beside the usual ones."""
    writer = gguf.GGUFWriter(str(path), "deepseek2")
    usual = {
        "block_count": 3,
        "embedding_length": 64,
        "attention.head_count": 4,
        "context_length": 4096,
        "vocab_size": 9,
    }
    for key, number in usual.items():
        writer.add_uint32(f"deepseek2.{key}", number)
    for key, number in numbers.items():
        writer.add_uint32(key if key.startswith("split.") else f"deepseek2.{key}", number)
    writer.add_array("deepseek2.attention.head_count_kv", [0, 1, 1])
    writer.add_tensor("token_embd.weight", np.zeros((9, 64), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return made_entry(read_model(ModelName.of(str(path)), token=None), HOUSE.models)


def test_a_latent_cache_is_counted_as_the_same_models_configuration_has_it(tmp_path: Path) -> None:
    latent = {"attention.key_length": 576, "attention.kv_lora_rank": 512, "rope.dimension_count": 64}
    old = made_gguf(tmp_path / "old.gguf", **latent).entry
    new = made_gguf(tmp_path / "new.gguf", **latent, **{"attention.key_length_mla": 192}, nextn_predict_layers=1).entry
    assert (old["kv_heads"], old["head_dim"], old["kv_layers"]) == (1, 576, 2)
    assert (new["kv_heads"], new["head_dim"], new["kv_layers"], new["layers"]) == (1, 288, 1, 2)


def test_a_model_of_several_files_is_their_sum_and_wants_them_all(tmp_path: Path) -> None:
    parts = [f"m-Q8_0-{number:05}-of-00002.gguf" for number in (1, 2)]
    with refuses("no-weights", match=f"no {parts[1]}"):
        made_gguf(tmp_path / parts[0], **{"split.count": 2})
    made_gguf(tmp_path / "second.gguf")
    (tmp_path / "second.gguf").rename(tmp_path / parts[1])
    files: dict[str, Content | bytes] = {part: (tmp_path / part).read_bytes() for part in parts}
    with hub_server(Hub({**files, f"UD/{parts[0]}": b"x"}, repo="org/m-GGUF")) as hub:
        made = added(hub, f"org/m-GGUF:{parts[0]}")
        with refuses("no-weights", match=f"name {parts[0]}"):
            added(hub, f"org/m-GGUF:{parts[1]}")
        with refuses("no-weights", match="in a folder"):
            added(hub, f"org/m-GGUF:UD/{parts[0]}")
        # What the entry asks for lies side by side, where the engine is given the first.
        allow = tuple(made.entry["source"]["hub"]["allow"])
        there = tmp_path / "there" / parts[0]
        place_snapshots([Wish(hub.repo, COMMIT, there, endpoint=hub.url, allow=allow, one_file=True)], print)
        assert [(there.parent / part).read_bytes() for part in parts] == list(files.values())
    entry: Any = made.entry
    assert (made.id, entry["file"], entry["source"]["hub"]["allow"]) == ("m-q8_0", parts[0], parts)
    assert entry["weight_bytes"] == sum(map(len, files.values()))  # type: ignore[arg-type]
    models = {**HOUSE.models, made.id: entry}
    for word in ("org/m-GGUF", f"org/m-GGUF:{parts[0]}", f"org/m-GGUF@{COMMIT}:{parts[0]}"):
        assert find_model(word, models) == made.id
    other: Any = {**entry, "file": "m-Q4_0.gguf"}
    assert find_model("org/m-GGUF", {**models, "m-q4_0": other}) is None
    assert find_model("org/m-GGUF:m-Q4_0.gguf", {**models, "m-q4_0": other}) == "m-q4_0"
    # Once it lies there, every part is looked into.
    assert check_model(tmp_path / parts[0]) == []
    (tmp_path / parts[1]).write_bytes(b"GGUF")
    assert [problem.where for problem in check_model(tmp_path / parts[0])] == [str(tmp_path / parts[1])]


def test_a_file_that_was_renamed_is_no_whole_model(tmp_path: Path) -> None:
    with refuses("model-shape-unknown", match="one of the 3 parts of a split model"):
        made_gguf(tmp_path / "m.gguf", **{"split.count": 3})


def test_a_branch_is_pinned_and_still_found_by_its_name() -> None:
    with hub_server(Hub(files_of(LITTLE, llama_like(LITTLE)))) as hub:
        made = added(hub, f"{hub.repo}@main")
    entry: Any = made.entry
    assert (entry["source"]["hub"]["revision"], entry["source"]["hub"]["branch"]) == (COMMIT, "main")
    models = {**HOUSE.models, made.id: entry}
    assert [find_model(f"{hub.repo}{end}", models) for end in ("", "@main", "@next")] == [made.id, made.id, None]


def test_a_home_of_nobody_is_no_folder() -> None:
    with pytest.raises(DrafthouseError, match="no such folder"):
        read_model(ModelName.of("~nobody-is-called-so/model"), token=None)


def test_a_hub_that_refuses_is_said_with_what_to_do() -> None:
    faults = {"api": [Fault(ALWAYS, status=404)]}
    with (
        hub_server(Hub(files_of(LITTLE, llama_like(LITTLE)), faults=faults)) as hub,
        pytest.raises(DrafthouseError) as error,
    ):
        added(hub)
    assert "HF_TOKEN" in error.value.problems[0].do


@pytest.mark.parametrize(
    ("word", "do"),
    [("org/none", "correct the name, or give HF_TOKEN"), ("org/model@next", "correct the revision, then run again")],
)
def test_a_name_that_is_wrong_is_said_in_words_of_a_name(word: str, do: str) -> None:
    with hub_server(Hub(files_of(LITTLE, llama_like(LITTLE)), repo="org/model")) as hub:
        with pytest.raises(DrafthouseError) as error:
            added(hub, word)
        assert [problem.do for problem in error.value.problems] == [do]


@pytest.mark.parametrize("word", ["qwen3", "a/b/c", "/", "org/", "@main", ""])
def test_what_is_no_name_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError):
        read_model(ModelName.of(word), token=None)


# --- on first use -----------------------------------------------------------------------------------------

TARGET: dict[str, Any] = {**LITTLE, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 151936,
                          "max_position_embeddings": 4096}  # fmt: skip
HEAD = {**TARGET, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
PROPOSED = {
    "speculators_config": {
        "algorithm": "eagle3",
        "proposal_methods": [{"speculative_tokens": 3}],
        "verifier": {"name_or_path": "org/Little"},
    },
    "transformer_layer_config": HEAD,
}


def fresh() -> Catalog:
    return replace(HOUSE, models={**HOUSE.models})


def first_use(
    hub: Hub, root: Path, target: object, draft: object = None, catalog: Catalog | None = None
) -> tuple[Catalog, list[str]]:
    """The catalogue with what was added below ``root``, and what was said."""
    said: list[str] = []
    catalog = catalog or fresh()
    add_missing(target, draft, catalog, root, said.append, token=None, endpoint=hub.url)
    return catalog, said


def resolved(catalog: Catalog, target: str, **speculation: Any) -> Any:
    spec = {"num_speculative_tokens": 3, **speculation}
    profile: Any = {**catalog.profiles["h100-llama33-ngram"], "target": target, "speculation": spec, "serve": {}}
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites((), ROOT).items()}
    return resolve(replace(catalog, profiles={"mine": profile}), "mine", site_of_inventory("vastai"), kinds)


def test_a_target_and_its_head_are_added_on_first_use_and_said(tmp_path: Path) -> None:
    hubs = [Hub(files_of(config, llama_like(config)), repo=f"org/{name}") for name, config in
            (("Little", TARGET), ("Little-Eagle3", HEAD))]  # fmt: skip
    with hub_server(*hubs) as hub:
        catalog, said = first_use(hub, tmp_path, "org/Little", "org/Little-Eagle3")
        asked = hub.sent
        assert first_use(hub, tmp_path, "org/Little", "org/Little-Eagle3", catalog)[1] == []
        assert hub.sent == asked
    written = sorted(path.name for path in (tmp_path / "profiles/catalog/local").iterdir())
    assert written == ["little-eagle3.yml", "little.yml"]
    assert [line for line in said if line.startswith("wrote:")] == [
        f"wrote: {tmp_path}/profiles/catalog/local/{name}.yml" for name in ("little", "little-eagle3")
    ]
    found = resolved(catalog, "org/Little", method="eagle3", draft="org/Little-Eagle3")
    assert (found["target"]["id"], found["draft"]["id"]) == ("little", "little-eagle3")


def test_a_head_that_is_served_brings_the_model_that_it_names(tmp_path: Path) -> None:
    hubs = [Hub(files_of(config, llama_like(TARGET)), repo=f"org/{name}") for name, config in
            (("Little", TARGET), ("Little-speculator.eagle3", PROPOSED))]  # fmt: skip
    with hub_server(*hubs) as hub:
        catalog, _ = first_use(hub, tmp_path, "org/Little-speculator.eagle3")
    assert catalog.models["little-speculator.eagle3"]["speculators"] == {"target": "org/Little", "tokens": 3}
    found = resolved(catalog, "org/Little-speculator.eagle3", method="eagle3")
    assert (found["target"]["id"], found["draft"]["id"]) == ("little", "little-speculator.eagle3")
    assert "names its model: org/Little" in " ".join(found["warnings"])


def test_a_head_for_a_model_that_nobody_added_is_for_the_profiles_target(tmp_path: Path) -> None:
    named = {**PROPOSED, "speculators_config": {**PROPOSED["speculators_config"], "verifier": {"name_or_path": "a/b"}}}
    hubs = [Hub(files_of(config, llama_like(TARGET)), repo=f"org/{name}") for name, config in
            (("Little", TARGET), ("Head", named))]  # fmt: skip
    with hub_server(*hubs) as hub:
        catalog, said = first_use(hub, tmp_path, "org/Little", "org/Head")
    assert catalog.models["head"]["head_for"] == "little"
    assert any("names a/b as its target" in line for line in said)


def test_another_commit_of_a_known_repository_has_a_name_of_its_own(tmp_path: Path) -> None:
    with hub_server(Hub(files_of(TARGET, llama_like(TARGET)), repo="Qwen/Qwen3-32B")) as hub:
        catalog, _ = first_use(hub, tmp_path, "Qwen/Qwen3-32B@main")
        assert catalog.models["qwen3-32b"] == HOUSE.models["qwen3-32b"]
        assert catalog.models[f"qwen3-32b-{COMMIT[:7]}"]["hidden"] == 64
    with hub_server(Hub(files_of(TARGET, llama_like(TARGET)), repo="other/Mine")) as hub:
        # Nor is a broken entry overwritten, in which somebody may have written something.
        catalog = replace(fresh(), broken_models={"mine": [Problem("x", "", "", "")]})
        first_use(hub, tmp_path, "other/Mine", catalog=catalog)
    assert f"mine-{COMMIT[:7]}" in catalog.models


@pytest.mark.parametrize("word", ["qwen3-32b", "Qwen/Qwen3-32B", "qwen3-23b", "/no/such/folder", "org/broken", 7, None])
def test_what_has_an_entry_or_is_no_repository_asks_nobody(tmp_path: Path, word: object) -> None:
    with hub_server(Hub(files_of(TARGET, llama_like(TARGET)))) as hub:
        first_use(
            hub, tmp_path, word, catalog=replace(fresh(), broken_models={"org/broken": [Problem("x", "", "", "")]})
        )
        assert hub.sent == 0
    assert not list(tmp_path.iterdir())


def test_without_a_network_nothing_is_added_and_the_profile_is_refused(tmp_path: Path) -> None:
    nowhere = Hub({})
    nowhere.url = "http://127.0.0.1:9"
    catalog, said = first_use(nowhere, tmp_path, "org/Little")
    assert said[-1].startswith("not added: no answer about org/Little")
    with refuses("unknown-value", match="drafthouse model add org/Little"):
        resolved(catalog, "org/Little", method="ngram")


def test_what_the_hub_refuses_is_said_as_it_is(tmp_path: Path) -> None:
    with hub_server(Hub(files_of(TARGET, llama_like(TARGET)), gated=True)) as hub, refuses("hub-gated"):
        first_use(hub, tmp_path, hub.repo)
