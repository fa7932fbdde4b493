"""What the watchdog is told: from an inventory, a profile and its results to files on a box."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.watchdog.decision import Rules
from drafthouse.addons.watchdog.order import entries, order_of
from drafthouse.core.box_archive import archive
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.files import lay_out
from drafthouse.core.typed_shape import shape_of
from drafthouse.profiles.profile_types import WatchdogSettings
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.watchdog_settings import hold_s
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_from, site_of_inventory
from tests.support.refusals import refuses
from tests.unit.analysis.test_break_even import ladder_of, result

pytestmark = pytest.mark.processes

RESULTS = {"baseline": result(15.0), "speculative": result(10.0, 4000, 2000)}


def resolved(profile: str = "cpu-smollm2-ngram", inventory: str = "local", **site: Any) -> Any:
    return resolved_profile(profile, {**site_of_inventory(inventory), **site})


def test_an_inventory_says_what_it_shall_do() -> None:
    site = site_from({**{f"drafthouse_{k}": v for k, v in site_of_inventory("local").items()},
                      "drafthouse_watchdog": {"mode": "restart", "dwell_s": 900}})  # fmt: skip
    assert site["watchdog"] == {"mode": "restart", "dwell_s": 900}
    with pytest.raises(DrafthouseError) as caught:
        resolved(watchdog={"mode": "restrat", "dwel_s": 1, "every_s": 0})
    assert [(one.where, one.do) for one in caught.value.problems] == [
        ("site: watchdog.mode", "write 'restart'"),
        ("site: watchdog.dwel_s", "write 'dwell_s'"),
        ("site: watchdog.every_s", "correct the value"),
    ]


def test_every_rule_can_be_set() -> None:
    assert set(Rules.__dataclass_fields__) <= set(shape_of(WatchdogSettings).fields)


def test_a_watchdog_asks_for_no_new_measurement() -> None:
    assert measured_key(resolved()) == measured_key(resolved(watchdog={"mode": "restart"}))


def test_the_gateway_holds_requests_where_servers_are_changed_and_only_there() -> None:
    for watchdog in ({}, {"mode": "report"}):
        assert resolved(gateway=True, watchdog=watchdog)["gateway"] == {"port": 8443, "name": ""}
    data = resolved(gateway=True, watchdog={"mode": "restart", "drain_s": 30})
    assert data["gateway"]["hold_s"] == 30 + 2 * data["engine"]["ready_timeout_s"] + 60
    assert resolved(watchdog={"mode": "restart"})["gateway"] is None
    assert hold_s(site_of_inventory("workstation"), 100) == 0


def test_the_order_has_what_was_measured_and_what_was_set() -> None:
    data = resolved(gateway=True, watchdog={"mode": "restart", "dwell_s": 900, "every_s": 2})
    order = order_of(data, RESULTS, ladder_of(0.5))
    assert (order["mode"], order["rules"], order["every_s"], order["tokens"]) == ("restart", {"dwell_s": 900}, 2.0, 8)
    assert [point["level"] for point in order["points"]] == [1, 2, 4, 8, 16, 32]
    assert order["door"] == f"{data['site']['home']}/gateway/data/door"
    assert order_of(resolved(), RESULTS, None)["mode"] == "report"
    with refuses("no-drafted-tokens"):
        order_of(data, {**RESULTS, "speculative": result(10.0)}, None)


def test_the_files_are_a_program_that_a_shell_starts(tmp_path: Path) -> None:
    data = resolved(home=str(tmp_path / "a home"), watchdog={})
    order = order_of(data, RESULTS, None)
    files = entries(ROOT / "templates", data, order)
    lay_out(files)
    folder = tmp_path / "a home" / "watchdog"
    assert json.loads((folder / "order.json").read_text()) == order
    assert subprocess.run(["sh", "-n", str(folder / "serve.sh")], check=False).returncode == 0
    assert f"{archive()[0]}' watchdog " in (folder / "serve.sh").read_text()
    assert not (folder / "program").exists()
    assert not lay_out(entries(ROOT / "templates", data, order)).changed
    # The order is read at every look: it is no reason to start the program again.
    again = lay_out(entries(ROOT / "templates", data, {**order, "every_s": 9.0}))
    assert again.changed == [str(folder / "order.json")]
    assert "secrets/api_key" in (folder / "order.json").read_text()
