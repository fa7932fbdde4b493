"""From an offer to a report to nothing left billing: the real engine in real containers. Time by step is printed."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.house import ROOT
from ansible_collections.drafthouse.core.plugins.module_utils.state import key_file

from tests.vast.cloud import HF_TOKEN, HOME, PROFILE, WATCH, Cloud, Watched, below, on_the_box, recap

MEASURING = r"AnsiballZ_benchmark\.py$"
PATIENCE_S = 600.0
Figure = Callable[[str], None]


def awaited(true: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"no {what} after {seconds:.0f} s"
        time.sleep(0.2)
    return time.monotonic() - began


def test_from_an_offer_to_a_report_to_nothing_billing(cloud: Cloud, figure: Figure) -> None:
    before = set(cloud.vast.others)
    with Watched({"account's key": cloud.vast.key, "HF token": HF_TOKEN}) as watched:
        began = time.monotonic()
        number = cloud.rent()
        figure(f"rented: make rent {time.monotonic() - began:.0f} s (a container that starts at once)")
        watched.also("container's key", cloud.vast.market.instances[number].container_key)
        # The watch runs before anything of ours came over SSH.
        awaited(lambda: "armed" in cloud.journal(number), "watch over the deadline", 30)

        site = cloud.play("site.yml")
        assert site.status == 0, site.output[-3000:]
        figure(f"rented: site.yml {site.seconds:.0f} s")
        watched.also("API key", cloud.api_key)
        assert "this box ends itself in" in site.output
        (report,) = cloud.reports.rglob("report.json")
        assert json.loads(report.read_text())["verdict"]["word"] in ("pays", "does not pay")

        again = cloud.play("site.yml")
        assert (again.status, recap(again.output, f"vast-{number}")["changed"]) == (0, 0), again.output[-3000:]
        figure(f"rented: site.yml again, nothing changed {again.seconds:.0f} s")

        nothing_secret_lies_about(cloud, number, [site.output, again.output])

        ended = cloud.run("make", "destroy")
        assert ended.status == 0, ended.output
        figure(f"rented: make destroy {ended.seconds:.0f} s")
    assert watched.looks > 100
    assert watched.found == set()
    assert not cloud.vast.ours
    assert set(cloud.vast.billing()) <= before == set(cloud.vast.others) == set(cloud.vast.instances)
    assert "nothing of ours bills" in cloud.run("make", "destroy", "ARGS=--list").output


def nothing_secret_lies_about(cloud: Cloud, number: int, outputs: list[str]) -> None:
    """Look through the box's disk, the controller's folders, and all that was printed."""
    box = cloud.boxes[number]
    container_key = cloud.vast.market.instances[number].container_key
    secrets = {
        "account's key": cloud.vast.key, "HF token": HF_TOKEN, "API key": cloud.api_key,
        "container's key": container_key,
    }  # fmt: skip
    key_on_box = f"{HOME}/secrets/api_key"
    on_box = on_the_box(box, secrets)
    assert on_box == {
        "account's key": {}, "HF token": {}, "API key": {key_on_box: "0o600"}, "container's key": {},
    }  # fmt: skip
    kept = key_file(PROFILE, cloud.state)
    assert list(below(cloud.folder, secrets)) == [("API key", kept, 0o600)]
    assert list(below(ROOT / "build", secrets)) == []
    assert list(below(ROOT / "rentals", secrets)) == []
    assert stat.S_IMODE(cloud.state.stat().st_mode) == 0o700
    assert not [name for name, value in secrets.items() for text in outputs if value in text]
    # What SSH sessions are shown has no secret of the platform's either.
    assert "jupyter-token" not in box.run("env").stdout + box.exec("cat", "/etc/environment").stdout


def test_three_at_once_and_one_dies(cloud: Cloud, figure: Figure) -> None:
    numbers = [cloud.rent() for _ in range(3)]
    third = numbers[-1]

    def die() -> None:
        box = cloud.boxes[third]
        awaited(lambda: box.exec("pgrep", "-f", MEASURING, check=False).returncode == 0, "measurement on the third")
        cloud.dies(third)

    dying = threading.Thread(target=die, daemon=True)
    dying.start()
    wrapped = ("scripts/rented.py", "--destroy", "on-success", "--")
    site = cloud.play("site.yml", before=wrapped)
    dying.join(30)
    figure(f"rented: three at once, one of which dies half-way: site.yml {site.seconds:.0f} s")
    assert site.status != 0
    for number in numbers[:2]:
        counts = recap(site.output, f"vast-{number}")
        assert (counts["failed"], counts["unreachable"]) == (0, 0), site.output[-4000:]
    counts = recap(site.output, f"vast-{third}")
    assert counts["failed"] + counts["unreachable"] == 1
    hosts = sorted(json.loads(path.read_text())["host"] for path in cloud.reports.rglob("report.json"))
    assert len(hosts) == 2
    # What became of the third, and what goes on costing money.
    (line,) = [line for line in site.output.splitlines() if line.startswith(f"vast-{third}: lost in '")]
    assert "vast.ai says 'exited'" in line
    assert f"make destroy ARGS={third}" in line
    assert "DESTROY=on-success (the run did not succeed): still billing" in site.output
    for number in numbers:
        assert f"  instance {number}, $" in site.output

    # A box like the one that is gone: the same key and the same scripts.
    first, second = (cloud.boxes[number] for number in numbers[:2])
    for file in ("secrets/api_key", f"serve/{PROFILE}/speculative/serve.sh", f"serve/{PROFILE}/baseline/serve.sh"):
        assert first.exec("cat", f"{HOME}/{file}").stdout == second.exec("cat", f"{HOME}/{file}").stdout
    assert first.exec("cat", f"{HOME}/secrets/api_key").stdout.strip() == cloud.api_key

    # One ends by itself at its deadline, with the key that the platform gave it.
    soon = int(time.time()) + 20
    play = cloud.play("playbooks/host.yml", "--limit", f"vast-{numbers[0]}", drafthouse_deadline=soon)
    assert play.status == 0, play.output[-3000:]
    late = awaited(lambda: numbers[0] not in cloud.vast.instances, "end at the deadline", 60)
    assert time.time() >= soon - 1
    used = {asked.key for asked in cloud.vast.asked if asked.route == "destroy"}
    assert used and cloud.vast.key not in used
    figure(f"rented: a box at its deadline, ended by itself ({WATCH}): waited {late:.0f} s")

    assert cloud.run("make", "destroy").status == 0
    assert not cloud.vast.ours
    assert set(cloud.vast.others) == set(cloud.vast.instances)


@pytest.mark.soak
def test_the_next_box_is_the_same_server(cloud: Cloud, figure: Figure) -> None:
    """The box is gone with all its files; the same commands give the same server, and the history goes on."""
    seen = []
    for _ in range(2):
        number = cloud.rent()
        began = time.monotonic()
        site = cloud.play("site.yml", serve_arm="speculative")
        assert site.status == 0, site.output[-3000:]
        box = cloud.boxes[number]
        script = box.exec("cat", f"{HOME}/serve/{PROFILE}/speculative/serve.sh").stdout
        stamp = json.loads(box.exec("sh", "-c", f"cat {HOME}/engines/*/.drafthouse-env.json").stdout)
        weights = box.exec(
            "sh", "-c", "cd /workspace/models && find . -type f ! -name '*.json' -exec sha256sum {} +"
        ).stdout
        seen.append((cloud.api_key, script, stamp["sha256"], sorted(weights.splitlines())))
        assert box.exec("cat", f"{HOME}/secrets/api_key").stdout.strip() == cloud.api_key
        figure(f"rented: a box from nothing to a server: {time.monotonic() - began:.0f} s")
        assert cloud.run("make", "destroy").status == 0
    assert seen[0] == seen[1]
    assert len(list(Path(cloud.reports).rglob("report.json"))) == 2
