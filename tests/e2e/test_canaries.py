"""Every secret of a run as a value that nothing else has: from the hub's gate to the gateway and the support bundle."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import play
from tests.fakes.hub_contents import OnDisk
from tests.fakes.hub_server import Hub, hub_server
from tests.support.canaries import LETTERS, Canaries, Watched, canary, environment, left_behind
from tests.support.engines import packaged_weights
from tests.support.gateway import real_caddy
from tests.support.ports import free_port
from tests.support.tales import TALES

pytestmark = pytest.mark.soak

PROFILE = "cpu-smollm2-ngram"
# A model that the catalogue has from the hub, and the small one's file in its place.
TARGET, REPO, FILE = "llama32-1b-q4", "bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q4_K_M.gguf"
COMMIT = "067b946cf014b7c697f3654f621d577a3e3afd1c"
OVERRIDES = {
    "target": TARGET,
    "serve": {"context": 1024},
    "experiment": TALES,
}


def test_a_run_with_hub_gateway_and_bundle_leaves_no_secret(tmp_path: Path, figure: Callable[[str], None]) -> None:
    secret = Canaries(
        {
            "HF_TOKEN": canary("hf_", LETTERS, 34),
            "VAST_API_KEY": canary("", "0123456789abcdef", 64),
            "DRAFTHOUSE_API_KEY": canary("", LETTERS, 40),
        }
    )
    person, box, port = tmp_path / "person", tmp_path / "box", free_port(3)
    person.mkdir()
    hub = Hub({}, REPO, gated=True, right=secret.values["HF_TOKEN"])
    hub.commits[COMMIT] = {FILE: OnDisk(packaged_weights("smollm2-135m-q4"))}
    given: dict[str, Any] = {
        "profile": PROFILE, "overrides": OVERRIDES, "drafthouse_home": str(box), "drafthouse_port": port,
        "drafthouse_models_dir": str(tmp_path / "models"), "report_folder": str(tmp_path / "reports"),
        "support_folder": str(tmp_path / "support"), "drafthouse_gateway": True,
        "drafthouse_gateway_port": port + 2, "gateway_binary": str(real_caddy()),
    }  # fmt: skip
    # uv's cache is shared, as between clones.
    cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))
    theirs = {"HOME": str(person), "DRAFTHOUSE_STATE": str(tmp_path / "state"), "UV_CACHE_DIR": cache}
    try:
        with hub_server(hub), Watched(secret) as watched, environment(secret, HF_ENDPOINT=hub.url, **theirs):
            ran = play("site.yml", "-vvv", "--diff", **given)
            bundled = play("playbooks/bundle_report.yml", "-vvv", "--diff", **given)
        assert (ran.status, bundled.status) == (0, 0), ran.output[-3000:] + bundled.output[-3000:]
        figure(f"canaries: site.yml {ran.seconds:.0f} s, support bundle {bundled.seconds:.0f} s, {watched.looks} looks")

        # The token opened the gate, and went nowhere else.
        assert hub.sent > 90_000_000
        assert hub.tokens_at_cdn == 0
        # Of the key of the gateway's TLS, a line that is its own.
        key_file = box / "gateway" / "tls" / "key.pem"
        secret.add("TLS key", key_file.read_text().splitlines()[1])

        assert set(secret.below(tmp_path)) == {
            ("DRAFTHOUSE_API_KEY", box / "secrets" / "api_key", 0o600),
            ("TLS key", key_file, 0o600),
        }
        assert left_behind(secret, ROOT, tmp_path) == []
        assert secret.within((ran.output + bundled.output).encode()) == set()
        assert watched.looks > 100
        assert watched.found == set()
        (bundle,) = (tmp_path / "support").glob("*.tar.gz")
        assert bundle.stat().st_size > 10_000
    finally:
        play("playbooks/stop.yml", **given)
