"""Every command of the five articles, as it stands there, and what must come of it."""

from __future__ import annotations

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.schema import Findings, check
from drafthouse.engines.pasted import FlagsToday
from drafthouse.engines.read_flags import read_given
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.schemas import PROFILE
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from drafthouse.translate.flags import load_flags
from drafthouse.translate.nearest_profile import catalogue_id, guessed_catalogue_id
from drafthouse.translate.sources import commands_of, engine_of_words
from drafthouse.translate.text import command_text, translation_text
from drafthouse.translate.translator import Translation, translate

# The key in article 004's commands is another one than the article's.
COMMANDS = {path.stem: path.read_text("utf-8") for path in sorted((Path(__file__).parent / "commands").glob("*.txt"))}
HOUSE: Catalog = load_catalog(ROOT)
FLAGS = load_flags(ROOT)

QWEN = ("qwen3-32b", "eagle3", "qwen3-32b-eagle3", 3)
LLAMA3 = ("meta-llama/Meta-Llama-3-70B", "draft_model", "meta-llama/Meta-Llama-3-8B", 5)
LLAMA33 = ("llama33-70b-fp8", "draft_model", "llama32-3b-fp8", 5)
#: name: engine, (target, method, draft, K), the profile that it is, what changed in which version
EXPECTED: dict[str, tuple[str, tuple[str, str, str | None, int], str | None, dict[str, str]]] = {
    "000-baseline": ("vllm", QWEN, "rtx6000-qwen-eagle3", {}),
    "000-eagle3": ("vllm", QWEN, "rtx6000-qwen-eagle3", {}),
    "001-qwen-eagle3": ("vllm", QWEN, "rtx6000-qwen-eagle3", {}),
    "001-trtllm-baseline": (
        "trtllm",
        ("gpt-oss-120b", "eagle3", "gpt-oss-120b-eagle3-v3", 3),
        "rtx6000-gptoss-trtllm-eagle3",
        {"TRTLLM_ENABLE_PDL=1": "1.2"},
    ),
    "001-trtllm-eagle3": ("trtllm", ("gpt-oss-120b", "eagle3", "gpt-oss-120b-eagle3-v2", 3), None, {}),
    "001-vllm-baseline": (
        "vllm",
        ("gpt-oss-120b", "eagle3", "gpt-oss-120b-eagle3-v3", 3),
        "rtx6000-gptoss-eagle3",
        {},
    ),
    "001-vllm-arctic": (
        "vllm-arctic",
        ("gpt-oss-120b", "arctic", "gpt-oss-120b-arctic-lstm", 3),
        "rtx6000-gptoss-arctic",
        {"--reasoning-parser GptOss": "0.10.2"},
    ),
    "001-vllm-eagle3": ("vllm", ("gpt-oss-120b", "eagle3", "gpt-oss-120b-eagle3", 3), None, {}),
    "002-server": (
        "vllm",
        LLAMA3,
        None,
        {"--speculative-model": "0.8.3", "--num-speculative-tokens": "0.8.3"},
    ),
    "002-python": ("vllm", LLAMA3, None, {"--speculative-model": "0.8.3"}),
    "003-python": ("vllm", ("meta-llama/Llama-3.2-3B", "draft_model", "meta-llama/Llama-3.2-1B", 5), None, {}),
    "003-server": (
        "vllm",
        ("meta-llama/Llama-3.2-7B", "draft_model", "meta-llama/Llama-3.2-1B", 5),
        None,
        {"--speculative-draft-tensor-parallel-size": "0.8.3"},
    ),
    "003-llamacpp": (
        "llamacpp",
        ("target-model.gguf", "draft-simple", "draft-model.gguf", 5),
        None,
        {"--draft": "2026-04 (PR 22397)"},
    ),
    "004-short": ("vllm", LLAMA33, "h100-llama33-draft3b", {"--speculative-model": "0.8.3"}),
    "004-base": ("vllm", LLAMA33, "h100-llama33-draft3b", {}),
    "004-draft": ("vllm", LLAMA33, "h100-llama33-draft3b", {"--num-speculative-tokens": "0.8.3"}),
    "004-gptq": ("vllm", ("llama33-70b-fp8", "draft_model", "llama32-3b-gptq", 5), "h100-llama33-gptqdraft", {}),
    "004-accelerator": (
        "vllm",
        ("llama33-70b-fp8", "mlp_speculator", "llama3-70b-accelerator", 4),
        "h100-llama33-mlp",
        {"method mlp_speculator": "after 0.9.2"},
    ),
    "004-ngram": (
        "vllm",
        ("llama33-70b-fp8", "ngram", None, 5),
        "h100-llama33-ngram",
        {"--ngram-prompt-lookup-max": "0.8.3"},
    ),
}


def flags_of(engine: str) -> FlagsToday:
    return FLAGS.of(engine, HOUSE.flags[engine].get(HOUSE.engines[engine]["default_version"]))


def all_of(text: str, files: dict[str, str] | None = None) -> list[Translation]:
    return translate(text, HOUSE, FLAGS, (files or {}).get)[0]


def one(text: str, files: dict[str, str] | None = None) -> Translation:
    (found,) = all_of(text, files)
    return found


def spec_of(translation: Translation) -> dict[str, Any]:
    """The speculation of a vLLM command of today."""
    words = [word for flag in translation.command for word in flag]
    return dict(json.loads(words[words.index("--speculative-config") + 1]))


def test_the_articles_are_all_here() -> None:
    assert set(COMMANDS) == set(EXPECTED)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_articles(name: str) -> None:
    engine, (target, method, draft, tokens), profile, versions = EXPECTED[name]
    found = one(COMMANDS[name])
    spec = found.profile["speculation"]
    assert (found.engine, found.profile["target"]) == (engine, target)
    assert (spec["method"], spec.get("draft"), spec["num_speculative_tokens"]) == (method, draft, tokens)
    assert (found.same[0] if found.same else None) == profile
    changed = {change.what: change.version for change in found.changes}
    assert versions.items() <= changed.items()
    findings = Findings(name)
    check(found.profile, PROFILE, findings)
    assert not findings.problems


@pytest.mark.parametrize("name", [name for name, wanted in EXPECTED.items() if wanted[1][0] in HOUSE.models])
def test_the_printed_profile_resolves_where_the_catalogue_knows_everything(name: str) -> None:
    found = one(COMMANDS[name])
    profile: Any = found.profile
    catalog = Catalog(HOUSE.hardware, HOUSE.models, HOUSE.engines, {"pasted": profile})
    suites = {suite: list(data["kinds"]) for suite, data in load_suites([], ROOT).items()}
    site = site_of_inventory(HOUSE.hardware[found.profile["hardware"]]["inventory"])
    # TensorRT-LLM comes as a container, ArcticInference as an environment.
    site["runtime"] = "docker" if found.engine == "trtllm" else "process"
    if name == "001-trtllm-eagle3":
        # The head that the article names has no commit in the catalogue: its code may be another tomorrow.
        with pytest.raises(DrafthouseError, match="trust_remote_code"):
            resolve(catalog, "pasted", site, suites)
        head = catalog.models[found.profile["speculation"]["draft"]]
        pinned: Any = {**head, "source": {"hub": {**head["source"]["hub"], "revision": "a" * 40}}}
        catalog.models = {**catalog.models, found.profile["speculation"]["draft"]: pinned}
    resolved = resolve(catalog, "pasted", site, suites)
    assert resolved["engine"]["version"] == found.version


#: Of one GPU: a command that splits nothing is for no more.
TARGETS = {
    one["target"]
    for one in HOUSE.profiles.values()
    if one["engine"] == "vllm"
    and "hub" in HOUSE.models[one["target"]]["source"]
    and HOUSE.models[one["target"]]["weight_bytes"] < 80e9
}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_bare_command_for_a_model_of_the_catalogue_becomes_a_profile_that_resolves(target: str) -> None:
    found = one(f"vllm serve {HOUSE.models[target]['source']['hub']['repo']}")
    catalog = Catalog(HOUSE.hardware, HOUSE.models, HOUSE.engines, {"pasted": found.profile})
    suites = {suite: list(data["kinds"]) for suite, data in load_suites([], ROOT).items()}
    site = site_of_inventory(HOUSE.hardware[found.profile["hardware"]]["inventory"])
    assert resolve(catalog, "pasted", site, suites)["target"]["id"] == target


def test_a_command_without_speculation_is_a_baseline() -> None:
    found = one(COMMANDS["000-baseline"])
    assert found.baseline
    assert "--speculative-config" not in command_text(found)
    assert "this is the baseline of the profile rtx6000-qwen-eagle3: make rtx6000-qwen-eagle3" in translation_text(
        found
    )


def test_todays_command_can_be_pasted_and_translates_to_itself() -> None:
    for name, text in COMMANDS.items():
        found = one(text)
        again = one(command_text(found))
        # What Python samples with is no flag of a server.
        found.profile.pop("temperature", None)
        assert again.profile == found.profile, name
        assert command_text(again) == command_text(found), name
        changed = [change for change in again.changes if change.kind in ("removed", "renamed", "ignored")]
        assert [change for change in changed if not change.what.startswith("method ")] == [], name


def test_the_engines_yaml_of_the_article_comes_out_as_it_went_in() -> None:
    before = yaml.safe_load(COMMANDS["001-trtllm-eagle3"].partition("yaml:")[2].partition("\n\n\n")[0])
    before["speculative_config"]["speculative_model_dir"] = "/models/original/gpt-oss-120b-Eagle3-v2"
    (text,) = one(COMMANDS["001-trtllm-eagle3"]).files.values()
    assert yaml.safe_load(text) == before


def test_what_the_method_requires_does_not_stand_in_the_profile_again() -> None:
    found = one(COMMANDS["001-trtllm-eagle3"])
    assert "disable_overlap_scheduler" not in found.profile["serve"]
    moved = {change.what for change in found.changes if change.kind == "moved"}
    assert {"disable_overlap_scheduler: True", "kv_cache_config.enable_block_reuse: False"} <= moved


def test_loose_flags_are_named_without_their_values() -> None:
    _, loose, _ = translate(COMMANDS["001-trtllm-eagle3"], HOUSE, FLAGS, lambda name: None)
    assert loose == ["--log_level"]
    _, loose, _ = translate("vllm serve x\n\n--api-key not-a-real-key-0123 is a key\n", HOUSE, FLAGS, lambda name: None)
    assert loose == ["--api-key"]


def test_a_model_that_does_not_exist_keeps_its_name_and_the_nearest_are_named() -> None:
    found = one(COMMANDS["003-server"])
    (note,) = [change for change in found.changes if change.what == "meta-llama/Llama-3.2-7B"]
    assert note.kind == "kept"
    assert "the catalogue has no such model; nearest: llama32-3b" in note.why
    assert found.near == ["rtx4090-llama32-draft1b"]


def test_old_minimum_of_the_n_gram_lookup() -> None:
    assert spec_of(one(COMMANDS["004-ngram"])) == {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1,
    }  # fmt: skip


def test_a_model_of_ones_own_is_found_by_its_folder_and_one_of_the_hub_by_its_revision() -> None:
    mine: Any = {**HOUSE.models["qwen3-32b"], "folder": "else", "source": {"path": "/models/mine"}}
    catalog = replace(HOUSE, models={**HOUSE.models, "my-own": mine})
    hub = HOUSE.models["llama33-70b-fp8"]["source"]["hub"]
    for word, key in (("/models/mine/", "my-own"), (f"{hub['repo']}@{hub['revision']}", "llama33-70b-fp8")):
        assert catalogue_id(catalog, word) == key
    assert (catalogue_id(catalog, "/x/Qwen3-32B"), guessed_catalogue_id(catalog, "/x/Qwen3-32B")) == (None, "qwen3-32b")


@pytest.mark.parametrize(
    ("repository", "target", "draft", "method", "tokens"),
    [
        ("RedHatAI/Qwen3-32B-speculator.eagle3", "qwen3-32b", "qwen3-32b-eagle3", "eagle3", 3),
        ("RedHatAI/Qwen3-8B-speculator.dflash", "qwen3-8b", "qwen3-8b-dflash", "dflash", 7),
        ("RedHatAI/Qwen3-8B-speculator.peagle", "qwen3-8b", "qwen3-8b-peagle", "peagle", 7),
    ],
)
def test_a_heads_repository_that_is_served_is_its_model_and_a_draft(
    repository: str, target: str, draft: str, method: str, tokens: int
) -> None:
    found = one(f"vllm serve {repository} --max-model-len 4096")
    assert (found.profile["target"], found.profile["speculation"], found.baseline) == (
        target,
        {"method": method, "draft": draft, "num_speculative_tokens": tokens},
        False,
    )
    assert found.command[0][-1] == HOUSE.models[target]["name"]
    spoken = spec_of(found)
    assert (spoken["model"], spoken["num_speculative_tokens"]) == (repository, tokens)
    assert spoken.get("parallel_drafting", False) == (method == "peagle")


def test_a_heads_repository_without_an_entry_is_said() -> None:
    found = one("vllm serve RedHatAI/Other-speculator.eagle3")
    assert found.missing == ["RedHatAI/Other-speculator.eagle3"]
    assert any("translate again" in change.why for change in found.changes)
    given = one('vllm serve a/b --speculative-config \'{"model": "c/d-speculator.eagle3", "method": "eagle3"}\'')
    assert not any("translate again" in change.why for change in given.changes)


def test_a_context_that_was_not_asked_for_and_does_not_fit_is_shortened() -> None:
    found = one(COMMANDS["004-short"])
    assert found.profile["serve"] == {"max_model_len": 8192}
    assert "--max-model-len 8192" in command_text(found)


@pytest.mark.parametrize(("given", "context"), [("4k", 4000), ("auto", 10240)])
def test_a_context_is_taken_from_a_profile_however_it_is_written(given: str, context: int) -> None:
    like = {name: one for name, one in HOUSE.profiles.items() if one["target"] == LLAMA33[0]}
    profiles: Any = {
        name: {**one, "serve": {**one.get("serve", {}), "max_model_len": given}} for name, one in like.items()
    }
    found = translate(COMMANDS["004-short"], replace(HOUSE, profiles=profiles), FLAGS, lambda _: None)[0][0]
    assert found.profile["serve"] == {"max_model_len": context}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.startswith("004")])
def test_a_key_is_never_printed_again(name: str) -> None:
    found = one(COMMANDS[name])
    assert "not-a-real-key-0123" not in translation_text(found) + repr(found)
    if name != "004-short":
        assert 'VLLM_API_KEY="$(cat secrets/api_key)" ' in command_text(found)


# --- nothing is dropped without a word ------------------------------------------------------------------

POOL = {
    "vllm serve org/model": [
        "--max_num_seqs 4", "-tp 2", "--enforce-eager", "--no-enable-prefix-caching", "--swap-space 16",
        "--enable-reasoning", "--reasoning-parser GptOss", "--host 0.0.0.0", "--port=9000", "--api-key k3y",
        "--hf-token tok", "--served-model-name a b", "--frobnicate", "--frobnicate-much 3", "-O3", "--seed 1",
        "--max-model-len=32k", "--device cuda", "--task generate", "--worker-use-ray", "-q fp8", "-Z 5",
        "--guided-decoding-backend xgrammar", "--lora-modules a=b c=d", "--spec-method ngram --spec-tokens 4",
        "--hf-overrides.rope_theta 10000", "--disable-log-requests", "--dtype=bfloat16", "--my-secret s3c",
    ],
    "llama-server -m m.gguf": [
        "-md d.gguf", "--draft-max 8", "--draft-min 1", "--draft-p-min 0.5", "-ngld 99", "-ngl 99", "-c 4096",
        "-np 2", "-fa", "--mlock", "-t 8", "--jinja", "--api-key k3y", "--host 0.0.0.0", "--port 1",
        "--frobnicate 3", "--metrics", "-ctk q8_0", "--no-warmup", "-p hello", "--color", "--temp 0.7",
    ],
    "trtllm-serve org/model": [
        "--host 0.0.0.0", "--port 8000", "--backend pytorch", "--tp_size 2", "--max-batch-size 4",
        "--trust_remote_code", "--config missing.yaml", "--log_level debug", "--max_beam_width 4",
        "--kv_cache_free_gpu_memory_fraction 0.9", "--frobnicate 3",
    ],
}  # fmt: skip


@pytest.mark.parametrize("base", POOL)
def test_no_flag_is_dropped_silently(base: str) -> None:
    dice = random.Random(3)
    for _ in range(60):
        chosen = dice.sample(POOL[base], dice.randint(1, len(POOL[base])))
        found = one(f"{base} {' '.join(chosen)}")
        text = command_text(found)
        shown = translation_text(found)
        assert "k3y" not in shown and "s3c" not in shown and "tok " not in shown
        told = " ".join(change.what for change in found.changes)
        (words,), _ = commands_of(f"{base} {' '.join(chosen)}")
        for given in read_given(words.words, flags_of(engine_of_words(words).name)):
            in_command = f" {given.flag} " in f"{text} " or (given.value is False and f"--no-{given.name}" in text)
            in_command = in_command or (not given.name.startswith("-") and f" {given.flag} \\" in text)
            is_model = given.name in ("", "model") and str(given.value) in text
            assert in_command or is_model or given.spelled in told, (given.spelled, chosen)


def test_flags_stand_in_the_order_in_which_they_were_given() -> None:
    found = one("vllm serve m --seed 1 --max-model-len 2048 --dtype bfloat16")
    assert [flag[0] for flag in found.command[1:4]] == ["--seed", "--max-model-len", "--dtype"]


def test_todays_command_has_one_flag_a_line_and_is_quoted() -> None:
    text = command_text(one(COMMANDS["000-eagle3"]))
    assert text.split("\n")[0] == "vllm serve /models/original/Qwen-Qwen3-32B \\"
    assert all(line.startswith("  --") for line in text.split("\n")[1:])
    assert shlex.split(text.replace("\\\n", ""))[-2] == "--speculative-config"


def test_problems_of_several_commands_are_told_together() -> None:
    with pytest.raises(DrafthouseError) as caught:
        all_of("vllm serve a -tp two\nvllm serve b --num-speculative-tokens 0\n")
    assert [problem.where for problem in caught.value.problems] == [
        "line 1, vllm serve: -tp",
        "line 2, vllm serve: num_speculative_tokens",
    ]


def test_a_draft_that_the_catalogue_lacks_is_not_the_head_of_a_profile() -> None:
    target = HOUSE.models["qwen38-27b-nvfp4"]["source"]["hub"]["repo"]
    for draft, same in (("", ["rtx6000-qwen38-mtp"]), ('"model": "org/Other-MTP", ', [])):
        options = f'{{"method": "mtp", {draft}"num_speculative_tokens": 3}}'
        found = one(f"vllm serve {target} --speculative-config '{options}'")
        assert found.same == same
        assert ("rtx6000-qwen38-mtp" in found.near) == (not same)
