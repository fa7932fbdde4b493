"""`drafthouse translate --to`: the nearest command of another engine, and what has no equivalent there."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from drafthouse.cli.translate import main
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.another import Another, in_words_of
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import translate

HOUSE, FLAGS = load_house(ROOT), load_flags(ROOT)
VLLM = (
    "vllm serve openai/gpt-oss-120b --max-model-len 65536 -tp 2 --gpu-memory-utilization 0.9 --max-num-seqs 8"
    " --tool-call-parser openai --stream-interval 3 --kv-cache-dtype fp8_e4m3 --speculative-config"
    """ '{"method": "eagle3", "model": "nvidia/gpt-oss-120b-Eagle3-v3", "num_speculative_tokens": 5}'"""
)


def to(engine: str, command: str) -> Another:
    (found,) = translate(command, HOUSE, FLAGS, lambda name: None)[0]
    return in_words_of(engine, found.profile, HOUSE, baseline=found.baseline, left_out=found.left_out)


def flags(found: Another) -> dict[str, Any]:
    return {words[0]: words[-1] for words in found.command[1:]}


def lost(found: Another) -> dict[str, str]:
    return dict(found.missing)


def test_what_has_the_same_meaning_is_taken_over() -> None:
    found = to("sglang", VLLM)
    assert found.command[0] == ["python3", "-m", "sglang.launch_server"]
    assert flags(found) == {
        "--model-path": "openai/gpt-oss-120b", "--context-length": "65536", "--tp-size": "2",
        "--mem-fraction-static": "0.9", "--max-running-requests": "8", "--kv-cache-dtype": "fp8_e4m3",
        "--enable-metrics": "--enable-metrics", "--enable-cache-report": "--enable-cache-report",
        "--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": "nvidia/gpt-oss-120b-Eagle3-v3",
        "--speculative-num-steps": "5", "--speculative-eagle-topk": "1", "--speculative-num-draft-tokens": "6",
    }  # fmt: skip
    assert found.environment == ["SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"]
    assert set(lost(found)) == {"--tool-call-parser openai", "--stream-interval 3"}


def test_an_engine_with_a_file_gets_one() -> None:
    found = to("trtllm", VLLM)
    ((name, text),) = found.files.items()
    assert found.command[-1] == ["--extra_llm_api_options", name]
    assert yaml.safe_load(text)["speculative_config"] == {
        "decoding_type": "Eagle", "speculative_model_dir": "nvidia/gpt-oss-120b-Eagle3-v3", "max_draft_len": 5,
    }  # fmt: skip
    assert "a share of a different amount" in lost(found)["--gpu-memory-utilization 0.9"]


def test_weights_that_do_not_load_are_named_with_those_that_do() -> None:
    found = to("llamacpp", VLLM)
    assert flags(found)["--spec-type"] == "draft-eagle3"
    assert "format safetensors" in lost(found)["openai/gpt-oss-120b"]
    assert "divides it among the sequences" in lost(found)["--max-model-len 65536"]
    head = "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"
    target = "vllm serve RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"
    speculation = {"method": "eagle3", "model": head, "num_speculative_tokens": 3}
    found = to("sglang", f"{target} --speculative-config '{json.dumps(speculation)}'")
    assert lost(found)[head].endswith("does not load; the catalogue has: llama33-70b-eagle3-specforge")


@pytest.mark.parametrize(
    ("engine", "command", "words", "missing"),
    [
        (
            "vllm",
            "sglang serve --model Qwen/Qwen3.8-27B-FP8 --speculative-algorithm NEXTN --speculative-num-steps 2",
            '{"method": "mtp", "num_speculative_tokens": 2}',
            set(),
        ),
        (
            "vllm",
            "sglang serve --model Qwen/Qwen3-8B --speculative-algorithm NGRAM --speculative-num-draft-tokens 6"
            " --speculative-ngram-match-type PROB",
            '{"method": "ngram", "num_speculative_tokens": 5}',
            {"--speculative-ngram-match-type PROB"},
        ),
        ("sglang", "vllm serve x/y --spec-method suffix --spec-tokens 8", "NGRAM", {"x/y"}),
        (
            "trtllm",
            "sglang serve --model Qwen/Qwen3-8B --speculative-algorithm DFLASH --speculative-draft-model z/w"
            " --speculative-draft-window-size 64",
            "",
            {"speculation by dflash", "z/w", "--speculative-draft-window-size 64"},
        ),
    ],
)
def test_a_method_is_the_one_that_drafts_with_the_same(
    engine: str, command: str, words: str, missing: set[str]
) -> None:
    found = to(engine, command)
    assert words in " ".join(word for flag in found.command for word in flag)
    assert missing <= set(lost(found))


def test_what_the_profile_could_not_hold_is_not_lost_silently() -> None:
    found = to(
        "vllm",
        "sglang serve --model Qwen/Qwen3-8B --revision abc --frob 1 --disable-radix-cache"
        " --speculative-algorithm EAGLE3 --speculative-draft-model-path x/y --speculative-adaptive"
        " --speculative-token-map z.pt",
    )
    assert {"--revision abc", "--frob 1", "--speculative-token-map of the speculation"} <= set(lost(found))
    assert {"--disable-radix-cache", "--speculative-adaptive"} <= set(lost(found))
    assert "--no-enable-prefix-caching" in lost(to("sglang", "vllm serve Qwen/Qwen3-8B --no-enable-prefix-caching"))


def test_a_baseline_stays_one() -> None:
    found = to("sglang", "vllm serve Qwen/Qwen3-8B")
    assert not [name for name in flags(found) if "specul" in name]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--to", "sglang", VLLM]) == 0
    printed = capsys.readouterr().out
    assert "the nearest command of SGLang" in printed
    assert "without an equivalent" in printed
    main(["--to", "sglang", "--json", VLLM])
    (told,) = json.loads(capsys.readouterr().out)["translations"]
    assert (told["engine"], told["to"]["engine"]) == ("vllm", "sglang")
    assert {"what": "--stream-interval 3", "why": "passed to the other engine unchanged"} in told["to"]["missing"]
    main(["--to", "vllm", VLLM])
    assert "--to vllm: it already is a command of vLLM" in capsys.readouterr().out
    main(["--to", "vllm", "--json", VLLM])
    assert "to" not in json.loads(capsys.readouterr().out)["translations"][0]
