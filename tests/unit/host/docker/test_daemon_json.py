"""daemon.json: the user's keys survive whatever is merged, and what is wrong is named with line and column."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host.docker.daemon import Daemon
from drafthouse.host.docker.daemon_json import merge, nvidia_part, parse, redacted, render, rotation, same_json, without
from drafthouse.host.docker.daemon_plan import Wishes, make_plan, nvidia_configured

KEYS = ["bip", "dns", "features", "log-driver", "log-opts", "runtimes", "storage-opts", "data-root", "label"]
RUNTIME = {"path": "nvidia-container-runtime", "args": []}


def leaves(data: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(data, dict):
        yield above, "{}"
        for key, value in data.items():
            yield from leaves(value, (*above, key))
    else:
        yield above, json.dumps(data)


def anything(dice: random.Random, depth: int = 3) -> Any:
    kind = dice.randrange(8 if depth else 6)
    if kind >= 5 and depth:
        return {key: anything(dice, depth - 1) for key in dice.sample(KEYS, dice.randrange(1, 4))}
    return dice.choice([True, False, None, 1, 0, 1.5, "x", "", "ä", [], ["a", {"b": 1}]])


def settings(dice: random.Random) -> dict[str, Any]:
    return {key: anything(dice, 2) for key in dice.sample(KEYS, dice.randrange(len(KEYS)))}


@pytest.mark.parametrize("seed", range(400))
def test_the_users_keys_survive_and_everything_of_ours_can_be_taken_out_again(seed: int) -> None:
    dice = random.Random(seed)
    user, needs, likes = settings(dice), settings(dice), settings(dice)
    before = json.dumps(user)
    try:
        merged = merge(user, needs, likes, {})
    except DrafthouseError as error:
        assert json.dumps(user) == before
        # Each problem is a real one: it names a key of the user's own, and without that wish there is none.
        named = {problem.found.removeprefix("your own '").split(".")[0].rstrip("'") for problem in error.problems}
        assert named <= set(user) & set(needs)
        needs = {key: value for key, value in needs.items() if key not in named}
        merged = merge(user, needs, likes, {})
    assert json.dumps(user) == before
    has = dict(leaves(merged.settings))
    for keys, value in leaves(user):
        assert has[keys] == value
    assert list(merged.settings)[: len(user)] == list(user)
    # A second run changes nothing, and keeps the record.
    text = render(user)
    after = render(merged.settings, text)
    again = merge(parse(after.encode()), needs, likes, merged.ours)
    assert render(again.settings, after) == after
    assert same_json(again.ours, merged.ours)
    # And the way back ends where it began.
    back = merge(merged.settings, {}, {}, merged.ours)
    assert same_json(back.settings, user)
    assert render(back.settings, text) == text
    assert back.ours == {}


def test_a_wish_of_ours_can_change_and_one_of_the_users_cannot() -> None:
    first = merge({}, {"live-restore": True}, {}, {})
    second = merge(first.settings, {"live-restore": False}, {}, first.ours)
    assert second.settings == {"live-restore": False}
    with pytest.raises(DrafthouseError) as caught:
        merge({"live-restore": True}, {"live-restore": False}, {}, {})
    (problem,) = caught.value.problems
    assert "live-restore" in problem.found
    assert "false" in problem.needed
    # The user changed what was ours: it is the user's from then on, also when the wish is gone.
    with pytest.raises(DrafthouseError):
        merge({"live-restore": False}, {"live-restore": True}, {}, first.ours)
    assert merge({"live-restore": False}, {}, {}, first.ours).settings == {"live-restore": False}


def test_every_contradiction_is_named_at_once() -> None:
    user: Any = {"data-root": "/var/lib/docker", "features": {"cdi": False}, "log-opts": "many"}
    with pytest.raises(DrafthouseError) as caught:
        merge(user, {"data-root": "/data", "features": {"cdi": True}, "log-opts": {"max-size": "1m"}}, {}, {})
    assert [problem.found for problem in caught.value.problems] == [
        "your own 'data-root'",
        "your own 'features.cdi'",
        "your own 'log-opts'",
    ]
    assert merge(user, {}, {"log-opts": {"max-size": "1m"}}, {}).left == ("log-opts",)


def test_true_is_not_one_and_a_path_may_end_in_a_slash() -> None:
    with pytest.raises(DrafthouseError):
        merge({"icc": 1}, {"icc": True}, {}, {})
    plan = make_plan('{"data-root": "/data/"}', {}, Wishes(data_root="/data"))
    assert not plan.differs


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{\n  "a": 1,\n\n   1: 2}', "line 4, column 4"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": 1} // why', "line 1, column 10"),
        ("[]", "no object"),
        ('"text"', "no object"),
        ("null", "no object"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "too large"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": {"b": 1, "b": 2}}', "'b' twice"),
    ],
)
def test_what_is_not_json_is_named_with_its_place(text: str, where: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        parse(text.encode(), "/etc/docker/daemon.json")
    (problem,) = caught.value.problems
    assert where in f"{problem.found} {problem.where}"
    assert "not changed" in problem.do


def test_a_byte_that_is_no_text_is_named_with_its_place() -> None:
    with pytest.raises(DrafthouseError, match="line 2, column 4"):
        parse(b'{\n  "\xff": 1}')


def test_no_password_in_messages_and_logs() -> None:
    text = '{"proxies": {"http-proxy": "http://me:secret@proxy:3128"}, oops}'
    with pytest.raises(DrafthouseError) as caught:
        parse(text.encode())
    user = parse(text.replace(", oops", "").encode())
    with pytest.raises(DrafthouseError) as other:
        merge(user, {"proxies": {"http-proxy": "http://other"}}, {}, {})
    assert "secret" not in str(caught.value) + str(other.value) + redacted(text)


def test_an_empty_file_and_a_byte_order_mark_are_docker_s_own() -> None:
    assert parse(b"") == parse(b" \n") == {}
    assert parse('\ufeff{"a": 1}'.encode()) == {"a": 1}


@pytest.mark.parametrize("indent", ["  ", "    ", "\t", " "])
def test_the_manner_of_the_file_is_kept(indent: str) -> None:
    text = f'{{\n{indent}"zwölf": {{\n{indent * 2}"b": 1\n{indent}}},\n{indent}"a": 2\n}}\n'
    assert render(parse(text.encode()), text) == text
    assert render({**parse(text.encode()), "c": 3}, text) == text.replace('"a": 2\n', f'"a": 2,\n{indent}"c": 3\n')
    odd = '{"a":   1,"b":[1,\n2]}'
    assert render({"b": [1, 2], "a": 1}, odd) == odd  # it says the same: not a byte is touched


def test_log_rotation_gives_way() -> None:
    ours = {"log-opts": {"max-size": "50m", "max-file": "3"}}
    assert rotation({}, "50m", 3) == ours
    assert rotation({"log-driver": "local", "log-opts": {"compress": "true"}}, "50m", 3) == ours
    assert rotation({"log-driver": "journald"}, "50m", 3) == {}
    assert rotation({}, "50m", 3, driver="syslog") == {}  # from a flag of dockerd
    assert rotation({"log-opts": {"max-size": "10m"}}, "50m", 3) == {}
    assert rotation({"log-opts": "none"}, "50m", 3) == {}
    first = merge({}, {}, ours, {})
    assert rotation(without(first.settings, first.ours), "1g", 2) == {"log-opts": {"max-size": "1g", "max-file": "2"}}


def test_nvidia_s_entries_are_taken_over_and_the_users_kept() -> None:
    configured: Any = {"features": {"cdi": True}, "runtimes": {"nvidia": RUNTIME}, "zzz": "sorted away"}
    needs = nvidia_part(configured, {"a": 1})
    assert needs == {"runtimes": {"nvidia": RUNTIME}, "features": {"cdi": True}}
    merged = merge({"a": 1}, needs, {}, {})
    assert merged.settings == {"a": 1, **needs}
    # Not wished any more (a profile for the CPU): they stay, and stay ours.
    later = make_plan(render(merged.settings), merged.ours, Wishes())
    assert not later.differs
    assert later.ours == merged.ours
    # What nvidia-docker2 wrote in its time says the same; something else under that name does not.
    older = {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []}}}
    assert nvidia_part(configured, older) == {"features": {"cdi": True}}
    other: tuple[Any, Any] = ({"runtimes": {"nvidia": {"path": "/opt/mine"}}}, {"features": {"cdi": False}})
    for own, name in zip(other, ("runtimes", "features.cdi"), strict=True):
        with pytest.raises(DrafthouseError, match=name):
            merge(own, nvidia_part(configured, own), {}, {})


def ctk(folder: Path, body: str) -> str:
    """Write a program in nvidia-ctk's place: made for the test."""
    path = folder / "nvidia-ctk"
    path.write_text(f"#!/usr/bin/env python3\nimport json, sys\npath = sys.argv[4].partition('=')[2]\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.processes
def test_the_plan_asks_nvidia_ctk_on_a_copy(tmp_path: Path) -> None:
    program = ctk(
        tmp_path,
        f"data = json.load(open(path)); data['runtimes'] = {{'nvidia': {RUNTIME}}}\n"
        "data['features'] = {'cdi': True}; json.dump(data, open(path, 'w'), indent=4, sort_keys=True)",
    )
    text = '{\n   "zone": 1,\n   "big": 1234567890123456789\n}\n'
    plan = make_plan(text, {}, Wishes(nvidia=True, reload_safe=True, max_size="1m", max_file=2), ctk=program)
    assert plan.needed
    assert json.loads(plan.after) == {
        "zone": 1,
        "big": 1234567890123456789,
        "log-opts": {"max-size": "1m", "max-file": "2"},
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "runtimes": {"nvidia": RUNTIME},
        "features": {"cdi": True},
    }
    assert list(json.loads(plan.after))[:2] == ["zone", "big"]
    again = make_plan(
        plan.after, plan.ours, Wishes(nvidia=True, reload_safe=True, max_size="1m", max_file=2), ctk=program
    )
    assert not again.differs
    assert not again.needed


def test_a_plan_knows_what_is_only_liked() -> None:
    liked = make_plan("{}", {}, Wishes(max_size="1m", max_file=2))
    assert liked.differs
    assert not liked.needed
    assert make_plan("{}", {}, Wishes(data_root="/data")).needed
    kept = make_plan('{"exec-opts": ["a"]}', {}, Wishes(nvidia=True, reload_safe=True))
    assert kept.left == ("exec-opts",)
    assert not kept.differs


@pytest.mark.processes
def test_nvidia_ctk_that_fails_is_heard(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match="cannot read"):
        nvidia_configured(ctk(tmp_path, "sys.exit('cannot read')"), "{}")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"ours": 3}', '{"before": 1}', "\0"])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    daemon = Daemon(str(tmp_path / "daemon.json"))
    daemon.record_path.write_text(text)
    assert daemon.read_record() == ({}, None)


def test_a_file_that_is_put_back_keeps_its_mode_and_an_empty_one_goes(tmp_path: Path) -> None:
    daemon = Daemon(str(tmp_path / "daemon.json"))
    daemon._put("{}\n")
    daemon.path.chmod(0o640)
    daemon._put('{"a": 1}\n')
    assert daemon.path.stat().st_mode & 0o7777 == 0o640
    assert daemon.text() == '{"a": 1}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["daemon.json"]
    daemon._put("")
    assert not list(tmp_path.iterdir())
