"""From an offer to a report to nothing left billing: the real engine in real containers. Time by step is printed."""

from __future__ import annotations

import json
import re
import stat
import time
from collections.abc import Callable, Sequence

import pytest

from drafthouse.cloud.vast.local_state import kept_key
from drafthouse.profiles.workspace import ROOT
from tests.support.canaries import Canaries, Watched, left_behind, on_the_box
from tests.support.verdicts import consistent
from tests.support.waiting import until
from tests.vast.cloud import HF_TOKEN, HOME, PROFILE, Cloud

Figure = Callable[[str], None]


def test_from_an_offer_to_a_report_to_nothing_billing(cloud: Cloud, figure: Figure) -> None:
    # The API key is made here, as the run would make it: so it is looked for from the beginning.
    cloud.state.mkdir(mode=0o700, exist_ok=True)
    given = {"account's key": cloud.vast.key, "HF token": HF_TOKEN, "API key": kept_key(PROFILE, cloud.state)}
    secret = Canaries(given)
    with Watched(secret) as watched:
        began = time.monotonic()
        number = cloud.rent()
        figure(f"rented: make rent {time.monotonic() - began:.0f} s (a container that starts at once)")
        watched.also("container's key", cloud.vast.market.instances[number].container_key)
        # Whoever answers later with another host key is refused.
        assert (cloud.state / "known_hosts").read_text().startswith(f"vast-{number} ssh-")
        # The watch runs before anything of ours came over SSH.
        until(lambda: "armed" in cloud.journal(number), "watch over the deadline", 30)

        site = cloud.play("site.yml", drafthouse_gateway=True)
        assert site.status == 0, site.output[-3000:]
        figure(f"rented: site.yml, gateway and all {site.seconds:.0f} s")
        assert "this box destroys itself in" in site.output
        (report,) = cloud.reports.rglob("report.json")
        assert consistent(json.loads(report.read_text()))

        answers_through_its_gateway(cloud, number, site.output)

        again = cloud.play("site.yml", drafthouse_gateway=True)
        assert again.status == 0, again.output[-3000:]
        assert changed_tasks(again.output) == [], again.output
        figure(f"rented: site.yml again, nothing changed {again.seconds:.0f} s")

        tls = cloud.boxes[number].exec("cat", f"{HOME}/gateway/tls/key.pem").stdout
        watched.also("TLS key", tls.splitlines()[1])
        loud = cloud.play("site.yml", "-vvv", "--diff", drafthouse_gateway=True)
        nothing_secret_lies_about(cloud, number, secret, [site.output, again.output, loud.output])

        ended = cloud.run("make", "destroy")
        assert ended.status == 0, ended.output
        figure(f"rented: make destroy {ended.seconds:.0f} s")
    assert watched.looks > 100
    assert watched.found == set()
    assert not cloud.vast.ours
    assert cloud.vast.billing() == cloud.vast.others == sorted(cloud.vast.instances)
    assert "nothing of ours bills" in cloud.run("make", "destroy", "ARGS=--list").output


def changed_tasks(output: str) -> list[str]:
    """The tasks of a run that changed anything."""
    tasks = re.split(r"^TASK \[", output, flags=re.M)[1:]
    return [task.partition("]")[0] for task in tasks if re.search(r"^changed: ", task, re.M)]


def answers_through_its_gateway(cloud: Cloud, number: int, output: str) -> None:
    """Ask from another machine: with the printed lines, without a key, without TLS, for what is closed."""
    lines = output.partition("# bash")[2].splitlines()[1:3]
    asked = cloud.run("bash", "-euc", "\n".join(lines))
    assert '"smollm2' in asked.output.lower(), asked.output

    def status(scheme: str, path: str, port: int = 8443) -> str:
        url = f"{scheme}://{cloud.boxes[number].ip4}:{port}{path}"
        words = ("curl", "-sk", "--noproxy", "*", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}", url)
        return cloud.run(*words).output

    assert (status("https", "/health"), status("https", "/v1/models"), status("https", "/metrics")) == (
        "200", "401", "404",
    )  # fmt: skip
    # No answer without TLS, and none of the engine past the gateway.
    assert (status("http", "/v1/models"), status("http", "/v1/models", 8000)) == ("400", "000")


def nothing_secret_lies_about(cloud: Cloud, number: int, secret: Canaries, outputs: Sequence[str]) -> None:
    """Look through the box's disk, the controller's folders, the clone, and all that was printed."""
    box = cloud.boxes[number]
    assert on_the_box(box, secret) == {
        "account's key": {}, "HF token": {}, "API key": {f"{HOME}/secrets/api_key": "0o600"}, "container's key": {},
        "TLS key": {f"{HOME}/gateway/tls/key.pem": "0o600"},
    }  # fmt: skip
    assert list(secret.below(cloud.folder)) == [("API key", cloud.key_file, 0o600)]
    assert stat.S_IMODE(cloud.state.stat().st_mode) == 0o700
    # The clone with all that runs have rendered and logged there, /tmp, and the container engine's log.
    assert left_behind(secret, ROOT, cloud.folder) == []
    assert secret.within("".join([*outputs, box.logs()]).encode()) == set()
    # What SSH sessions are shown has no secret of the platform's either.
    assert "jupyter-token" not in box.run("env").stdout + box.exec("cat", "/etc/environment").stdout


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
    assert len(list(cloud.reports.rglob("report.json"))) == 2
