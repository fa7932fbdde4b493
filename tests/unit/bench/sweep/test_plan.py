"""What a ladder may ask for, what the resolver makes of it, and what is sent in which order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from drafthouse.bench.sweep.plan import LadderPlan, Rung, endless, heading, numbered, plan_of, requests_by_kind, rungs
from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.prompts.load_levels import doubled, longest_s, read_levels, read_rates

PROFILE = "cpu-smollm2-vllm-ngram"
LLAMA = "cpu-smollm2-ngram"


def resolved(ladder: Any | None, profile: str = PROFILE, **overrides: Any) -> Any:
    experiment = {} if ladder is None else {"experiment": {"ladder": ladder}}
    return resolved_profile(profile, site_of_inventory("local"), {**experiment, **overrides})


def problems(ladder: Any, profile: str = PROFILE, **overrides: Any) -> list[tuple[str, str]]:
    with pytest.raises(DrafthouseError) as caught:
        resolved(ladder, profile, **overrides)
    return [(one.where.partition(": ")[2], one.found) for one in caught.value.problems]


def suite(name: str, **kinds: int) -> Any:
    return {
        "name": name,
        "description": "for tests",
        "kinds": {
            kind: {
                "output_tokens": 10,
                "prompts": [
                    {"id": f"{kind}-{number}", "messages": [{"role": "user", "content": f"{kind} {number}"}]}
                    for number in range(prompts)
                ],
            }
            for kind, prompts in kinds.items()
        },
    }


# ---- levels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "levels"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12]), (16, [1, 2, 4, 8, 16])],
)
def test_levels_double(to: int, levels: list[int]) -> None:
    assert doubled(to) == levels


def test_levels_of_a_command_line() -> None:
    assert read_levels("1,2,8") == [1, 2, 8]
    assert read_levels("to:6") == [1, 2, 4, 6]
    assert read_rates("0.5,2") == [0.5, 2.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no whole number"),
        ("1,two", "'two' is no whole number"),
        ("0", "0: each must be above 0"),
        ("-1,2", "-1, 2: each must be above 0"),
        ("2,1", "2, 1: each must be above the one before"),
        ("2,2", "2, 2: each must be above the one before"),
        ("up:4", "'up:4' is neither 1,2,4 nor to:16"),
        ("to:0", "0: each must be above 0"),
        ("1.5", "'1.5' is no whole number"),
    ],
)
def test_levels_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"is no|must be|is neither") as caught:
        read_levels(text)
    assert str(caught.value) == said


@pytest.mark.parametrize("text", ["", "fast", "0", "nan", "inf", "2,1"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no list of rates|must be"):
        read_rates(text)


# ---- the resolver --------------------------------------------------------------------------------


def test_a_profile_without_a_ladder_stays_as_it_was() -> None:
    plain = resolved(None)
    assert "ladder" not in plain["experiment"]
    # The key of results that are kept: another one would have everybody measure again.
    assert measured_key(plain) != measured_key(resolved({"to": 2}))
    assert "\nload " not in plan_text(plain)


def test_everything_of_a_ladder_is_explicit() -> None:
    got = resolved({"to": 8})["experiment"]
    assert got["ladder"] == {
        "load": "closed", "unit": "concurrent requests", "levels": [1, 2, 4, 8], "seconds": 30.0, "narrow": 0.03,
        "kinds": got["kinds"], "limits": {}, "rounds": 2,
    }  # fmt: skip
    asked = {
        "rates": [0.5, 1], "seconds": 5, "narrow": 0.1, "kinds": ["chat"], "limits": {"ttft_ms": 1000, "tpot_ms": 50},
        "rounds": 1,
    }  # fmt: skip
    assert resolved(asked)["experiment"]["ladder"] == {
        "load": "open", "unit": "requests a second", "levels": [0.5, 1.0], "seconds": 5.0, "narrow": 0.1,
        "kinds": ["chat"], "limits": {"ttft_ms": 1000.0, "tpot_ms": 50.0}, "rounds": 1,
    }  # fmt: skip


def test_the_plan_says_what_the_ladder_takes() -> None:
    got = resolved({"levels": [1, 4], "seconds": 10, "kinds": ["chat", "code"]})
    assert longest_s(got["experiment"]["ladder"], kinds=2, arms=2) == 2 * 2 * 10 * 2 * 2
    line = next(line for line in plan_text(got).splitlines() if line.startswith("load "))
    assert "1, 4 concurrent requests: 2 kinds of work, 2 rounds, each step at most 10 s, 3 min at most in all" in line
    # As few as this profile sends of each kind show nothing over two levels.
    assert "note       'chat' has" in plan_text(got)


@pytest.mark.parametrize(
    ("ladder", "where", "found"),
    [
        ({}, "experiment.ladder", "0 of them (none)"),
        ({"to": 4, "levels": [1]}, "experiment.ladder", "2 of them (levels, to)"),
        ({"levels": []}, "experiment.ladder.levels", "an empty list"),
        ({"levels": [4, 2]}, "experiment.ladder.levels", "4, 2: each must be above the one before"),
        ({"levels": [0, 2]}, "experiment.ladder.levels[0]", "0"),
        ({"rates": [-1.0]}, "experiment.ladder.rates", "-1: each must be above 0"),
        ({"rates": [float("nan")]}, "experiment.ladder.rates[0]", "nan"),
        ({"levels": "1,2"}, "experiment.ladder.levels", "'1,2'"),
        ({"to": 4, "kinds": ["chta"]}, "experiment.ladder.kinds[0]", "'chta', which no suite of this profile has"),
        ({"to": 4, "rounds": 9}, "experiment.ladder.rounds", "9"),
        ({"to": 4, "narrow": 0}, "experiment.ladder.narrow", "0"),
        ({"to": 4, "seconds": 0.1}, "experiment.ladder.seconds", "0.1"),
        ({"to": 4, "limits": {"ttft": 1}}, "experiment.ladder.limits.ttft", "the unknown key 'ttft'"),
        ({"too": 4}, "experiment.ladder.too", "the unknown key 'too'"),
    ],
)
def test_what_is_wrong_with_a_ladder(ladder: Any, where: str, found: str) -> None:
    assert (where, found) in problems(ladder)


def test_an_arm_must_serve_the_highest_level() -> None:
    assert problems({"to": 16}) == [("serve.max_num_seqs", "8")]
    assert problems({"levels": [1, 2]}, LLAMA) == [("serve.parallel", "1")]
    wide = resolved({"levels": [1, 2]}, LLAMA, serve={"parallel": 2})
    assert wide["experiment"]["ladder"]["levels"] == [1, 2]
    # Where neither the profile nor the catalogue names a number, nobody knows what waits inside the engine.
    assert problems({"levels": [1]}, LLAMA, serve={"parallel": None}) == [("serve.parallel", "nothing")]
    # In both arms: they differ in speculation alone.
    assert all(["--parallel", "2"] in arm["flags"] for arm in wide["arms"].values())
    # An open loop has no highest number: what waits is what it shows.
    assert resolved({"rates": [1.0]}, LLAMA)["experiment"]["ladder"]["load"] == "open"


def test_where_a_profile_says_nothing_the_engines_own_number_counts() -> None:
    site = site_of_inventory("workstation")
    plain = {"experiment": {"ladder": {"to": 128}}}
    assert resolved_profile("rtx6000-qwen-eagle3", site, plain)["experiment"]["ladder"]["levels"][-1] == 128
    with pytest.raises(DrafthouseError, match=r"found: 128"):
        resolved_profile("rtx6000-qwen-eagle3", site, {"experiment": {"ladder": {"to": 129}}})


# ---- what is sent --------------------------------------------------------------------------------

PLAN = LadderPlan("closed", (1, 4), ("chat", "code"), rounds=(1, 2), of_rounds=2)


def test_arms_take_turns_and_levels_go_up() -> None:
    got = rungs(PLAN, ["baseline", "speculative"])
    assert len(got) == len(set(got)) == 2 * 2 * 2 * 2
    assert [one.level for one in got[:8]] == [1] * 4 + [4] * 4
    first = [(one.kind, one.arm) for one in got if one.level == 1 and one.round == 1]
    assert first == [
        ("chat", "baseline"), ("chat", "speculative"), ("code", "speculative"), ("code", "baseline"),
    ]  # fmt: skip
    # The second round begins with the other arm: a steady drift of the machine meets both alike.
    again = [(one.kind, one.arm) for one in got if one.level == 1 and one.round == 2]
    assert again == [
        ("chat", "speculative"), ("chat", "baseline"), ("code", "baseline"), ("code", "speculative"),
    ]  # fmt: skip


def test_both_arms_get_the_very_same_requests_and_no_two_are_alike() -> None:
    asks = requests_by_kind(PLAN, [suite("s", chat=3), suite("t", code=2, other=1)])
    assert {kind: len(them) for kind, them in asks.items()} == {"chat": 3, "code": 2}

    def sent(rung: Rung) -> list[Any]:
        return list(itertools.islice(endless(asks[rung.kind], PLAN, rung), 7))

    one, two = sent(Rung(4, "baseline", 1, "chat")), sent(Rung(4, "speculative", 1, "chat"))
    assert one == two
    assert [ask.prompt_id for ask in one] == ["chat-0", "chat-1", "chat-2"] * 2 + ["chat-0"]
    everything = [
        str(ask.messages) for level in (1, 4) for number in (1, 2) for kind in ("chat", "code")
        for ask in sent(Rung(level, "baseline", number, kind))
    ]  # fmt: skip
    assert len(set(everything)) == len(everything)
    # What tells them apart stands first, or a prefix cache would know the rest.
    assert all(text.startswith("[{'role': 'user', 'content': '[") for text in everything)
    # A later round begins elsewhere.
    assert sent(Rung(4, "baseline", 2, "chat"))[0].prompt_id == "chat-1"


def test_a_number_before_the_first_text() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert numbered([{"role": "user", "content": "hi"}], "7") == [{"role": "user", "content": "[7] hi"}]
    assert numbered([{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}], "7") == [
        {"role": "system", "content": "[7] be"},
        {"role": "user", "content": "hi"},
    ]
    assert numbered([{"role": "user", "content": parts}], "7")[0]["content"] == [
        {"type": "text", "text": "[7] "}, *parts,
    ]  # fmt: skip
    without: list[Any] = [{"role": "assistant", "content": None, "tool_calls": []}]
    assert numbered(without, "7") == without


def test_a_kind_that_no_suite_has() -> None:
    with pytest.raises(DrafthouseError, match="no kind 'code'"):
        requests_by_kind(PLAN, [suite("s", chat=1)])


def test_the_plan_of_a_resolved_ladder() -> None:
    ladder = resolved({"levels": [1, 2], "seconds": 3})["experiment"]["ladder"] | {"kinds": []}
    plan = plan_of(ladder, [suite("s", chat=1, code=1), suite("t", extra=1)], ["t"], [2], 9.0)
    assert (plan.kinds, plan.rounds, plan.of_rounds, plan.seconds, plan.timeout_s) == (("chat", "code"), (2,), 2, 3, 9)
    head = heading(plan, "x", "k")
    assert head["schema"] == "drafthouse.ladder/1"
    assert (head["unit"], head["levels"], head["rounds"]) == ("concurrent requests", [1, 2], 2)
    assert (head["steps"], head["crossover"]) == ([], None)


def test_a_single_prompt_is_never_sent_twice_alike() -> None:
    asks = requests_by_kind(PLAN, [suite("s", chat=1, code=1)])
    sent = [
        str(next(endless(asks[kind], PLAN, Rung(level, "baseline", number, kind))).messages)
        for level in (1, 4) for number in (1, 2) for kind in ("chat", "code")
    ]  # fmt: skip
    assert len(set(sent)) == len(sent)
