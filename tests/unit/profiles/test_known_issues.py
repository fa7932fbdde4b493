"""Each known issue, with a profile that runs into it and one beside it that does not; and what becomes of a match."""

from __future__ import annotations

import copy
import functools
import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment.plan_text import plan_text
from drafthouse.operate.checks.finding import FAIL
from drafthouse.operate.checks.known_issues import not_run_into
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.known_issues import REFUSED, Setup, check_issues, issue_changes, matches
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.started import settings_of
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.catalogue import table

SITE = {"manage_host": True, "runtime": "docker", "home": "/h", "models_dir": "/m", "host": "127.0.0.1", "port": 8000}
GGUF = {"format": "gguf", "file": "m.gguf"}


@functools.cache
def catalog() -> Any:
    return load_catalog(ROOT)


@dataclass(frozen=True)
class Case:
    """A profile as far as known issues look at it: models by the name of their repository, settings as started."""

    engine: str
    version: str
    method: str
    kind: str
    target: str = "an-org/Plain-1B"
    traits: tuple[str, ...] = ()
    draft: str = "an-org/Plain-1B-draft"
    draft_traits: tuple[str, ...] = ()
    tokens: int = 3
    hardware: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


vllm = functools.partial(Case, "vllm", "0.32.0")
EAGLE, MTP, DFLASH = ("eagle3", "head"), ("mtp", "builtin"), ("dflash", "head")
NGRAM = ("ngram", "lookup")
TP, PREFIX = "--tensor-parallel-size", "--no-enable-prefix-caching"
TOOLS, THINKS = "--tool-call-parser", "--reasoning-parser"
GEMM, RUNNER = "environment VLLM_USE_DEEP_GEMM", "environment VLLM_USE_V2_MODEL_RUNNER"
HYBRID = ("hybrid",)
TWO = {"devices": 2}
AMPERE, HOPPER = {"compute_capability": "8.0"}, {"compute_capability": "9.0"}
GLM, DSV4 = "zai-org/GLM-5.3-Flash", "deepseek-ai/DeepSeek-V4-Flash-0731"
ONE_5090 = {"name": "NVIDIA GeForce RTX 5090", "memory_mib": 32607}
SCHEDULE = "--speculative-config num_speculative_tokens_per_batch_size"


ALGORITHM = "--speculative-algorithm"
ADAPTIVE = {ALGORITHM: "EAGLE", "--speculative-adaptive": True}


def sglang(version: str, method: str = "eagle", kind: str = "head", **more: Any) -> Case:
    return Case("sglang", version, method, kind, settings={ALGORITHM: method.upper()}, **more)


def trtllm(version: str, target: str = "openai/gpt-oss-20b", **more: Any) -> Case:
    return Case("trtllm", version, *EAGLE, target=target, **more)


def llamacpp(method: str, kind: str, version: str = "2026.10.11549", **more: Any) -> Case:
    return Case("llamacpp", version, method, kind, **more)


# a row of the file, a profile that runs into it, and what of that makes the neighbour that does not
CASES: dict[str, tuple[Case, dict[str, Any]]] = {
    "vllm-hybrid-prefix-cache": (vllm(*EAGLE, traits=HYBRID), {"settings": {PREFIX: True}}),
    "vllm-mtp-hybrid-illegal-access": (vllm(*MTP, traits=HYBRID, tokens=2), {"tokens": 1}),
    "vllm-mtp-tensor-parallel-illegal-access": (
        Case("vllm", "0.25.0", *MTP, target="Qwen/Qwen3.6-27B", hardware=TWO, settings={TP: 2}), {"version": "0.30.0"}),
    "vllm-qwen3-next-mtp-deep": (vllm(*MTP, target="Qwen/Qwen3-Next-80B-A3B", tokens=5), {"tokens": 4}),
    "vllm-mtp-required-tools": (Case("vllm", "0.22.0", *MTP, settings={TOOLS: "hermes", THINKS: "qwen3"}),
        {"version": "0.21.0"}),
    "vllm-ngram-tool-arguments": (Case("vllm", "0.28.0", *NGRAM, settings={TOOLS: "qwen3_coder"}),
        {"settings": {TOOLS: "qwen3_coder", "--speculative-config prompt_lookup_min": 8}}),
    "vllm-dflash-responses-tools": (Case("vllm", "0.28.0", *DFLASH, settings={TOOLS: "hermes", "--dtype": "bfloat16"}),
        {"version": "0.29.0"}),
    "vllm-eagle3-grammar-kimi": (Case("vllm", "0.26.0", *EAGLE, target="moonshotai/Kimi-K2.6"), {"version": "0.27.0"}),
    "vllm-dspark-tool-stalls": (Case("vllm", "0.25.1", "dspark", "head", settings={TOOLS: "hermes"}),
        {"version": "0.26.0"}),
    "vllm-mtp-without-weights": (Case("vllm", "0.16.0", *MTP), {"version": "0.17.0"}),
    "vllm-mtp-quantised-head": (vllm(*MTP, target="an-org/Plain-1B-NVFP4"), {"target": "an-org/Plain-1B-BF16"}),
    "vllm-step-mtp-nvfp4": (Case("vllm", "0.26.0", *MTP, target="stepfun-ai/Step-3.5-NVFP4"), {"version": "0.27.0"}),
    "vllm-gemma4-assistant": (vllm(*EAGLE, target="google/gemma-4-31B-it", draft="google/gemma-4-31B-it-assistant"),
        {"draft": "RedHatAI/gemma-4-31B-it-speculator.eagle3"}),
    "vllm-deepseek-v32-mtp": (Case("vllm", "0.15.0", *MTP, target="deepseek-ai/DeepSeek-V3.2"), {"version": "0.14.1"}),
    "vllm-dflash-quantised-kv": (Case("vllm", "0.25.1", *DFLASH, settings={"--kv-cache-dtype": "fp8"}),
        {"settings": {"--kv-cache-dtype": "auto"}}),
    "vllm-dflash-mixed-window": (vllm(*DFLASH, draft_traits=("sliding-window",)), {"settings": {RUNNER: "1"}}),
    "vllm-dflash-dtype": (vllm(*DFLASH), {"settings": {"--dtype": "bfloat16"}}),
    "vllm-deepgemm-dflash": (vllm(*DFLASH, traits=("moe",)), {"settings": {GEMM: "0"}}),
    "vllm-deepgemm-sm120": (vllm(*NGRAM, target="Qwen/Qwen3-32B-FP8", hardware={"compute_capability": "12.0"}),
        {"hardware": {"compute_capability": "9.0"}}),
    "vllm-qwen38-nvfp4-one-5090": (vllm(*EAGLE, target="nvidia/Qwen3.8-27B-NVFP4", hardware=ONE_5090),
        {"hardware": {**ONE_5090, **TWO}}),
    "vllm-muse-glimmer-one-5090": (vllm(*DFLASH, target="an-org/Muse-Glimmer-NVFP4", hardware=ONE_5090),
        {"hardware": {**ONE_5090, **TWO}}),
    "vllm-hybrid-late-oom": (vllm(*EAGLE, traits=HYBRID, hardware=ONE_5090, settings={"--max-model-len": 262144}),
        {"hardware": {"memory_mib": 97887}}),
    "vllm-eagle3-rocm-attention": (vllm(*EAGLE, hardware={"name": "AMD Instinct MI355X"}),
        {"hardware": {"name": "NVIDIA B200"}}),
    "vllm-batch-k-data-parallel": (
        vllm(*EAGLE, hardware=TWO, settings={"--data-parallel-size": 2, SCHEDULE: [[1, 64, 3]]}),
        {"settings": {"--data-parallel-size": 1, SCHEDULE: [[1, 64, 3]]}}),
    "vllm-pipeline-parallel": (vllm(*EAGLE, settings={"--pipeline-parallel-size": 2}), {"settings": {}}),
    "vllm-lora-eagle3": (vllm(*EAGLE, settings={"--enable-lora": True}), {"method": "ngram", "kind": "lookup"}),
    "vllm-gptoss-nvidia-head-tp": (
        Case("vllm", "0.11.0", *EAGLE, target="openai/gpt-oss-120b", draft="nvidia/gpt-oss-120b-Eagle3", hardware=TWO,
            settings={TP: 2}),
        {"version": "0.12.0"}),
    "vllm-eagle3-head-of-2048": (
        Case("vllm", "0.24.0", *EAGLE, draft="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", settings={"--max-model-len": 4096}),
        {"settings": {"--max-model-len": 2048}}),
    "vllm-mtp-second-vocabulary": (
        vllm(*MTP, target="RedHatAI/Qwen3.8-27B-INT4", hardware={"memory_mib": 24576}),
        {"hardware": {"memory_mib": 32153}}),
    "vllm-dflash2-greedy-drafts": (
        vllm(*DFLASH, draft="z-lab/Qwen3.8-27B-DFlash2", settings={"--dtype": "bfloat16"}),
        {"settings": {"--dtype": "bfloat16", "--speculative-config draft_sample_method": "probabilistic"}}),
    "vllm-dflash-qwen36-moe": (vllm(*DFLASH, target="Qwen/Qwen3.6-35B-A3B"), {"settings": {RUNNER: "0"}}),
    "vllm-mtp-graph-capture": (Case("vllm", "0.25.1", *MTP, settings={RUNNER: "1"}), {"settings": {RUNNER: "0"}}),
    "vllm-glm53-mtp": (vllm(*MTP, target="zai-org/GLM-5.3-FP8"), {"target": "zai-org/GLM-5.3-Flash"}),
    "vllm-glm53-flash-nvfp4-mtp": (vllm(*MTP, target="nvidia/GLM-5.3-Flash-NVFP4"),
        {"method": "dflash", "kind": "head"}),
    "vllm-glm53-flash-sm120": (
        Case("vllm", "0.30.0", *NGRAM, target=GLM, hardware={"compute_capability": "12.0"}), {"version": "0.31.0"}),
    "vllm-glm53-flash-before-hopper": (vllm(*NGRAM, target=GLM, hardware=AMPERE), {"hardware": HOPPER}),
    "vllm-glm53-flash-hopper-attention": (vllm(*NGRAM, target=GLM, hardware=HOPPER),
        {"settings": {"--attention-backend": "FLASH_ATTN_MLA_SPARSE"}}),
    "vllm-dsv4-before-hopper": (vllm(*NGRAM, target=DSV4, hardware=AMPERE), {"hardware": HOPPER}),
    "vllm-dsv4-sm120": (
        Case("vllm", "0.27.0", *NGRAM, target=DSV4, hardware={"compute_capability": "12.0"}), {"version": "0.28.0"}),
    "sglang-eagle-for-eagle3": (sglang("0.5.15", draft="an-org/a-head-EAGLE3"),
        {"method": "eagle3", "settings": {ALGORITHM: "EAGLE3"}}),
    "sglang-glm45-air-mtp": (sglang("0.5.10", target="zai-org/GLM-4.5-Air-FP8"), {"version": "0.5.11"}),
    "sglang-eagle-grammar": (sglang("0.5.10"), {"version": "0.5.11"}),
    "sglang-gptoss-eagle3-v3": (
        sglang("0.5.18", "eagle3", target="openai/gpt-oss-120b", draft="nvidia/gpt-oss-120b-Eagle3-v3"),
        {"draft": "nvidia/gpt-oss-120b-Eagle3-v2"}),
    "sglang-glm5-b300-graphs": (sglang("0.5.12", target="nvidia/GLM-5-NVFP4", hardware={"name": "NVIDIA B300"}),
        {"hardware": {"name": "NVIDIA B200"}}),
    "sglang-adaptive-branches": (replace(sglang("0.5.15"), settings={**ADAPTIVE, "--speculative-eagle-topk": 4}),
        {"settings": {**ADAPTIVE, "--speculative-eagle-topk": 1}}),
    "sglang-adaptive-steps": (replace(sglang("0.5.15", tokens=4), settings={**ADAPTIVE, "--speculative-num-steps": 4}),
        {"settings": {**ADAPTIVE, "--speculative-num-steps": 3}, "tokens": 3}),
    "sglang-qwen38-mtp-sm86": (
        sglang("0.5.17", target="Qwen/Qwen3.8-27B", hardware={"compute_capability": "8.6", **TWO}),
        {"hardware": {"compute_capability": "8.6", "devices": 1}}),
    "sglang-eagle3-without-draft": (sglang("0.5.20", "eagle3", "nothing"),
        {"kind": "head", "settings": {ALGORITHM: "EAGLE3", "--speculative-draft-model-path": "/m/head"}}),
    "trtllm-gptoss-eagle3-tools": (trtllm("1.2.1"), {"version": "1.3.0rc24"}),
    "trtllm-gptoss-eagle3-sm120-loop": (trtllm("1.2.0rc1"), {"hardware": {"compute_capability": "9.0"}}),
    "trtllm-llama8b-eagle3-sm120": (trtllm("1.2.0", "meta-llama/Llama-3.1-8B-Instruct"), {"version": "1.2.1"}),
    "llamacpp-draft-device": (llamacpp("draft-simple", "model", settings={"--spec-draft-device": "CUDA1"}),
        {"settings": {}}),
    "llamacpp-mtp-parallel": (llamacpp("draft-mtp", "builtin", "2026.8.10229", settings={"--parallel": 2}),
        {"version": "2026.8.10566"}),
    "llamacpp-dflash-split-tensor": (llamacpp("draft-dflash", "head", settings={"--split-mode": "tensor"}),
        {"settings": {"--split-mode": "layer"}}),
    "llamacpp-mtp-split-tensor": (
        llamacpp("draft-mtp", "builtin", "2026.5.9294", settings={"--split-mode": "tensor"}),
        {"version": "2026.6.9538"}),
    "llamacpp-glm45-air-split-tensor": (
        llamacpp("ngram-simple", "lookup", target="zai-org/GLM-4.5-Air", settings={"--split-mode": "tensor"}),
        {"settings": {"--split-mode": "layer"}}),
    "llamacpp-block-of-eight": (llamacpp("draft-dflash", "head", tokens=8), {"tokens": 7}),
    "llamacpp-mtp-vision": (llamacpp("draft-mtp", "builtin", "2026.6.9713", settings={"--mmproj": "/m/mmproj.gguf"}),
        {"version": "2026.7.9873"}),
    "llamacpp-eagle3-split-tensor": (llamacpp("draft-eagle3", "head", settings={"--split-mode": "tensor"}),
        {"settings": {"--split-mode": "layer"}}),
    "llamacpp-request-n-max": (llamacpp("ngram-simple", "lookup"), {"version": "2026.9.11063"}),
    "ik-llama-hybrid-slots": (
        Case("ik_llama", "1.0", "draft-mtp", "builtin", traits=HYBRID, settings={"--parallel": 2}),
        {"settings": {"--parallel": 1}}),
    "llamacpp-dspark-gb10": (llamacpp("draft-dspark", "head", traits=HYBRID, hardware={"compute_capability": "12.1"}),
        {"hardware": {"compute_capability": "12.0"}}),
}  # fmt: skip
#: What the catalogue refuses before anybody looks for known issues; its row is for those who start by hand.
EARLIER = {"vllm-pipeline-parallel": "method-needs-option", "sglang-eagle3-without-draft": "draft-missing"}
WHOLE = [name for name, (case, _) in CASES.items() if case.engine in table("engines") and name not in EARLIER]


# --- the matcher ------------------------------------------------------------------------------------------


def model_of(name: str, traits: tuple[str, ...], **more: Any) -> Any:
    """A small model of the catalogue under another name."""
    entry = {**catalog().models["llama32-1b"], "name": name, "traits": list(traits), "context": 300_000}
    return {**entry, "source": {"hub": {"repo": name, "revision": "0" * 40}}, **more}


def hardware_of(case: Case) -> Any:
    return {"id": "a-card", **catalog().hardware["rtx6000"], **case.hardware}


def setup_of(case: Case) -> Setup:
    drafts = case.kind in ("head", "model")
    return Setup(
        engines=(case.engine,),
        version=case.version,
        method=case.method,
        draft_kind=case.kind,
        tokens=case.tokens,
        target=model_of(case.target, case.traits, id="a-target"),
        draft=model_of(case.draft, case.draft_traits, id="a-draft") if drafts else None,
        hardware=hardware_of(case),
        settings={name: "on" if value is True else str(value) for name, value in case.settings.items()},
    )


def test_every_row_has_its_two_plans() -> None:
    assert set(CASES) == set(catalog().issues)
    assert len(CASES) == 62
    assert len(WHOLE) >= 17


@pytest.mark.parametrize("name", CASES)
def test_a_row_matches_its_plan_and_not_the_neighbour(name: str) -> None:
    case, beside = CASES[name]
    assert matches(catalog().issues[name], setup_of(case))
    assert not matches(catalog().issues[name], setup_of(replace(case, **beside)))


# --- whole profiles ---------------------------------------------------------------------------------------


def resolved_of(case: Case, **more: Any) -> Any:
    """Resolve the profile of a case; methods and options that the catalogue does not have yet are added to it."""
    changed = copy.deepcopy(catalog())
    engine, serve, options = changed.engines[case.engine], {}, {}
    engine["methods"].setdefault(case.method, new_method(engine, case))
    method = engine["methods"][case.method]
    for name, value in case.settings.items():
        word, _, key = name.rpartition(" ")
        if word.startswith("-") or any(one.get("name") == name for one in method.get("options", {}).values()):
            options[given(method.setdefault("options", {}), "name", key, value)] = value
        else:
            serve[given(engine["options"], "environment" if word else "flag", key, value)] = value
    gguf = GGUF if case.engine == "llamacpp" else {}
    target = model_of(case.target, case.traits, **gguf)
    if case.kind == "builtin":
        target["builtin_head"] = {"kind": method.get("head", case.method), "layers": 1, "tensors": ["mtp.*"]}
    draft = model_of(case.draft, case.draft_traits, **gguf, folder="a-draft", weight_bytes=10**8, parameters=10**7)
    if case.kind == "head":
        draft |= {"kind": "head", "head_for": "a-target", "head_method": method.get("head", case.method)}
    changed.models |= {"a-target": target, "a-draft": draft}
    changed.hardware["a-card"] = hardware_of(case)
    sequences = engine["sequences_option"]
    speculation = {"method": case.method, "num_speculative_tokens": case.tokens, "options": options}
    if case.kind in ("head", "model"):
        speculation["draft"] = "a-draft"
    changed.profiles["a-case"] = {
        "title": "a case",
        "hardware": "a-card",
        "engine": case.engine,
        "engine_version": case.version,
        "target": "a-target",
        "speculation": speculation,
        "serve": {sequences: 1, engine["context_option"]: 4096, **serve},
        "experiment": {"suites": ["tiny"]},
        **more,
    }
    return resolve(changed, "a-case", SITE, {"tiny": ["chat"]})


def new_method(engine: Any, case: Case) -> Any:
    """A method that is started as those that are there."""
    like = next(one for one in engine["methods"].values() if "model" in one["names"])
    return {"draft": case.kind, "names": like["names"]}


def given(options: Any, how: str, word: str, value: object) -> str:
    """The option that writes a word, which is added where there is none."""
    kinds = {bool: "bool", int: "int"}
    found = next((key for key, option in options.items() if option.get(how) == word), None)
    if found is None:
        found = re.sub(r"\W+", "_", word).strip("_").lower()
        options[found] = {how: word, "type": kinds.get(type(value), "str")}
    return str(found)


def ids(resolved: Any) -> list[str]:
    return [issue["id"] for issue in resolved["known_issues"]]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_profile_runs_into_its_row_and_its_neighbour_does_not(name: str) -> None:
    case, beside = CASES[name]
    assert name in ids(resolved_of(case))
    assert name not in ids(resolved_of(replace(case, **beside)))


@pytest.mark.parametrize("name", EARLIER)
def test_what_the_catalogue_rules_out_does_not_resolve_at_all(name: str) -> None:
    case, beside = CASES[name]
    with pytest.raises(DrafthouseError) as caught:
        resolved_of(case)
    assert [problem.code for problem in caught.value.problems] == [EARLIER[name]]
    assert name not in ids(resolved_of(replace(case, **beside)))


# --- what becomes of a match ------------------------------------------------------------------------------

WRONG = "vllm-hybrid-prefix-cache"


def refusals(resolved: Any) -> list[str]:
    return [one.found.partition(":")[0] for one in not_run_into(resolved, {})]


def test_preflight_refuses_wrong_answers_and_crashes_unless_they_are_accepted_by_name() -> None:
    case, _ = CASES[WRONG]
    (problem,) = not_run_into(resolved_of(case), {})
    assert problem.status == FAIL
    assert problem.found.startswith(f"{WRONG}: ")
    assert f"accept_known_issues: {{{WRONG}: reason}}" in problem.do
    assert refusals(resolved_of(case, accept_known_issues={WRONG: "its gate is green"})) == []


@pytest.mark.parametrize("name", [name for name in WHOLE if catalog().issues[name]["effect"] not in REFUSED])
def test_preflight_lets_other_effects_run(name: str) -> None:
    assert name not in refusals(resolved_of(CASES[name][0]))


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--a", "b"], "--a", "b"),
        (["--a=b"], "--a", "b"),
        (["--a"], "--a", "on"),
        (['--a={"c": 1}'], "--a c", "1"),
        (["--a", "{% c %}"], "--a", "'{% c %}'"),
    ],
)
def test_a_setting_is_read_however_its_flag_is_written(words: list[str], name: str, value: str) -> None:
    arm: Any = {"command": ["x"], "flags": [["model"], words], "environment": {}, "config": None}
    assert settings_of(arm) == {"command": "x", "model": "model", name: value}


def test_an_acceptance_of_nothing_is_named_with_what_is_near() -> None:
    with pytest.raises(DrafthouseError) as caught:
        resolved_of(CASES[WRONG][0], accept_known_issues={"vllm-hybrid-prefix-cach": "a typo"})
    (problem,) = caught.value.problems
    assert problem.code == "unknown-value"
    assert problem.where.endswith("accept_known_issues.vllm-hybrid-prefix-cach")
    assert WRONG in problem.do


def test_the_plan_says_what_it_is_what_to_do_and_why_it_is_accepted() -> None:
    resolved = resolved_profile("rtx6000-gptoss-trtllm-eagle3", site_of_inventory("workstation"))
    (issue,) = resolved["known_issues"]
    shown = plan_text(resolved)
    for part in (issue["id"], issue["do"], "accepted by the profile: ", *issue["threads"], issue["checked"]):
        assert part in shown


@pytest.mark.parametrize("name", catalog().profiles)
def test_no_profile_of_ours_is_refused(name: str) -> None:
    hardware = catalog().hardware[catalog().profiles[name]["hardware"]]
    assert refusals(resolved_profile(name, site_of_inventory(hardware["inventory"]))) == []


def test_an_upgrade_says_which_issues_come_and_go() -> None:
    case, beside = CASES["vllm-eagle3-grammar-kimi"]
    old, new = resolved_of(case), resolved_of(replace(case, **beside))
    (gone,) = issue_changes(old, new)
    assert gone.startswith("known issue gone: vllm-eagle3-grammar-kimi")
    comes, do = issue_changes(new, old)
    assert comes.startswith("known issue comes: vllm-eagle3-grammar-kimi")
    assert do.strip().startswith("do: ")


TO_COME = {"engines": ["ik_llama"], "methods": []}


def test_what_is_to_come_is_not_there_yet() -> None:
    to_come = table("known-issues")["to_come"]
    assert not set(to_come["engines"]) & set(catalog().engines)
    assert not set(to_come["methods"]) & {method for one in catalog().engines.values() for method in one["methods"]}


# --- the file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"engine": "vlm"}, "engine"),
        ({"when": {"methods": ["mtpp"]}}, "when.methods"),
        ({"until": "0.32.5"}, "until"),
        ({"since": "0.32.5"}, "since"),
        ({"signature": "(open"}, "signature"),
        ({"when": {"target": {"named": "(open"}}}, "when.target.named"),
        ({"when": {"hardware": {"named": "(open"}}}, "when.hardware.named"),
    ],
)
def test_a_row_that_nothing_could_match_is_refused(change: Any, place: str) -> None:
    file: Any = {"to_come": TO_COME, "issues": {"a-row": {**catalog().issues[WRONG], **change}}}
    (problem,) = check_issues(file, catalog().engines).problems
    assert problem.where.endswith(f"issues.a-row.{place}")


def test_a_row_of_an_engine_to_come_may_name_what_it_will_have() -> None:
    row = {**catalog().issues[WRONG], "engine": "ik_llama", "until": "0.5.18", "when": {"methods": ["NEXTN"]}}
    file: Any = {"to_come": TO_COME, "issues": {"a-row": row}}
    assert check_issues(file, catalog().engines).problems == []


def test_an_uncertain_row_says_so_wherever_it_is_told() -> None:
    resolved: Any = {**resolved_of(CASES[WRONG][0]), "suites": SUITES}
    assert f"not certain: {catalog().issues[WRONG]['uncertain']}" in plan_text(resolved)


PROMPT: Any = {"id": "a", "messages": [{"role": "user", "content": "Pour."}]}
KINDS: Any = {"chat": {"output_tokens": 8, "prompts": [PROMPT]}}
SUITES: Any = {"tiny": {"name": "tiny", "description": "One.", "kinds": KINDS}}
