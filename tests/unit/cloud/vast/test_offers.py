"""Which offer is rented: the search, the price of an hour, the disk, and every reason against an offer."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast.body import LONGEST_ONSTART, body_of, onstart_of, ports_of
from drafthouse.cloud.vast.offers import (
    Limits,
    driver_number,
    full_price,
    no_offer_fits,
    offers_table,
    query_of,
    reasons_against,
    suitable_offers,
)
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.rental_spec import cuda_of, disk_gb
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.fakes.vast_market import FIELDS, Market, offer
from tests.fakes.vast_market import priced as shown
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

LIMITS = Limits(2.5, 3)


def row(resolved: Any, number: int = 1, **values: Any) -> Any:
    """An offer as a search for this profile shows it."""
    return shown(offer(number, **values), resolved["rental"]["disk_gb"])


# --- what the plan asks for -------------------------------------------------------------------------------


def test_the_disk_is_the_plan_s_own_figure(resolved: Any) -> None:
    weights = sum(item["bytes"] for item in resolved["weights"])
    assert weights / GB == pytest.approx(76.3, abs=0.1)
    # (76.3 + 25) x 1.1 = 111.4: whole GB, upwards.
    assert resolved["rental"]["disk_gb"] == disk_gb(weights, "gpu") == 112
    assert resolved["rental"]["disk_gb"] * GB >= (weights + 25 * GB) * 1.1


def test_every_profile_that_runs_on_a_rental_has_a_disk_for_it() -> None:
    tried = 0
    for name, profile in load_catalog(ROOT).profiles.items():
        try:
            resolved = resolved_profile(name, site_of_inventory("vastai"))
        except DrafthouseError:
            continue  # its engine has no runtime of processes
        rental = resolved["rental"]
        assert rental["disk_gb"] * GB > sum(item["bytes"] for item in resolved["weights"]), name
        if rental["vast_names"]:
            tried += 1
            assert query_of(resolved, LIMITS)["disk_space"] == {"gte": rental["disk_gb"]}
            assert body_of(resolved, "x", 1800000000, 3, "https://console.vast.ai")["disk"] == rental["disk_gb"]
            assert rental["image"] and ":" in rental["image"], profile
    assert tried > 5


def test_the_name_at_a_shop_is_no_new_measurement(resolved: Any) -> None:
    renamed: Any = {**resolved, "hardware": {**resolved["hardware"], "vast_names": ["another"]}}
    assert measured_key(renamed) == measured_key(resolved)


@pytest.mark.parametrize(("version", "cuda"), [("0.32.0", "13.0"), ("0.20.0", "13.0"), ("0.19.1", "12.8")])
def test_the_driver_follows_the_engine_s_version(version: str, cuda: str) -> None:
    assert cuda_of(load_catalog(ROOT).engines["vllm"], version)["cuda"] == cuda


def test_the_search_says_it_all_in_words_that_the_api_knows(resolved: Any) -> None:
    query = query_of(resolved, LIMITS)
    assert {key for key in query if key not in ("type", "order", "limit", "allocated_storage")} <= FIELDS
    assert query["gpu_name"] == {"in": ["H100 NVL"]}
    assert query["compute_cap"] == {"gte": 900}
    assert query["driver_version"] == {"gte": 580065006}
    assert query["cuda_max_good"] == {"gte": 13.0}
    assert query["direct_port_count"] == {"gte": 2}
    assert query["duration"] == {"gte": 3 * 3600}
    assert query["cpu_arch"] == {"in": ["amd64"]}
    assert query["verified"] == {"eq": True}
    assert query["allocated_storage"] == 112
    assert "verified" not in query_of(resolved, Limits(2.5, 3, verified=False))


def test_hardware_that_nobody_rents_out_is_said() -> None:
    cpu = resolved_profile("cpu-smollm2-ngram", site_of_inventory("vastai"))
    with refuses("hardware-not-rentable"):
        query_of(cpu, LIMITS)


# --- prices -----------------------------------------------------------------------------------------------


def test_an_hour_costs_the_box_its_disk_and_the_download(resolved: Any) -> None:
    price = full_price(row(resolved, dph_base=2.0, storage_cost=0.36, inet_down_cost=0.01), resolved["rental"], 3)
    assert price.box == pytest.approx(2.0)
    assert price.disk == pytest.approx(0.36 * 112 / 720)
    assert price.traffic == pytest.approx(0.01 * 88.3 / 3)
    assert price.hour == pytest.approx(price.box + price.disk + price.traffic)
    assert price.total == pytest.approx(price.hour * 3)


def test_a_total_that_says_more_than_its_parts_is_believed(resolved: Any) -> None:
    dear: Any = {**row(resolved, dph_base=2.0), "dph_total": 9.0}
    assert full_price(dear, resolved["rental"], 3).hour > 9.0
    unknown: Any = {key: value for key, value in row(resolved, dph_base=2.0).items() if key != "dph_base"}
    assert (
        full_price(unknown, resolved["rental"], 3).hour
        > full_price(row(resolved, dph_base=2.0), resolved["rental"], 3).hour
    )


@pytest.mark.parametrize("field", ["dph_total", "storage_cost", "inet_down_cost"])
@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -1.0, "2.0", True])
def test_a_price_that_is_none_is_not_nothing(resolved: Any, field: str, value: object) -> None:
    offer: Any = {**row(resolved), field: value}
    assert reasons_against(offer, resolved, LIMITS)


# --- the choice -------------------------------------------------------------------------------------------

# Each alone is a reason; the server's filters may or may not have seen it.
WRONG: list[dict[str, Any]] = [
    {"gpu_name": "H100 PCIE"},
    {"num_gpus": 2},
    {"gpu_ram": 40960},
    {"compute_cap": 800},
    {"cuda_max_good": 12.8},
    {"driver_version": "570.211.01"},
    {"disk_space": 111.0},
    {"inet_down": 45.0},
    {"direct_port_count": 1},
    {"reliability": 0.9},
    {"cpu_arch": "arm64"},
    {"verification": "unverified"},
    {"rentable": False},
    {"rented": True},
    {"external": True},
    {"duration": 3 * 3600 - 1},
    {"dph_base": 2.45},
    {"inet_down_cost": 0.09},
    {"storage_cost": 15.0},
]


@pytest.mark.parametrize("values", WRONG, ids=lambda values: next(iter(values)))
def test_whatever_is_wrong_with_an_offer_it_is_not_taken(resolved: Any, values: dict[str, Any]) -> None:
    right, wrong = row(resolved, 1, dph_base=2.3), row(resolved, 2, **{"dph_base": 0.5, **values})
    assert reasons_against(right, resolved, LIMITS) == []
    assert len(reasons_against(wrong, resolved, LIMITS)) == 1, "one thing is wrong, and it is said once"
    assert [one.number for one in suitable_offers([wrong, right], resolved, LIMITS)] == [1]


def test_the_cheapest_of_a_whole_market_is_chosen(resolved: Any) -> None:
    market = Market()
    rows: list[Any] = market.search(query_of(resolved, LIMITS))
    found = suitable_offers(rows, resolved, LIMITS)
    assert [one.number for one in found] == [8200002, 8200001]
    assert "2.202" in offers_table(found)


def test_an_answer_without_any_filter_makes_the_same_choice(resolved: Any) -> None:
    rows: list[Any] = [shown(one, 112) for one in Market().offers.values()]
    assert [one.number for one in suitable_offers(rows, resolved, LIMITS)] == [8200002, 8200001]


def test_at_one_price_the_more_reliable_goes_first(resolved: Any) -> None:
    rows = [row(resolved, 1, reliability=0.985), row(resolved, 2, reliability=0.999), row(resolved, 3)]
    assert [one.number for one in suitable_offers(rows, resolved, LIMITS)] == [2, 3, 1]


def test_no_offer_says_what_would_do(resolved: Any) -> None:
    error = no_offer_fits([row(resolved, dph_base=2.6)], resolved, LIMITS)
    assert "costs $2.682 an hour" in str(error)
    assert "MAX_PRICE=2.69" in str(error)
    assert "no offer at all" in str(no_offer_fits([], resolved, LIMITS))
    assert "gpu_ram 1024" in str(no_offer_fits([row(resolved, gpu_ram=1024)], resolved, LIMITS))


def test_any_market_any_cap(resolved: Any) -> None:
    for seed in range(300):
        dice = random.Random(seed)
        limits = Limits(dice.choice([0.5, 1.0, 2.0, 3.0]), dice.choice([0.5, 1, 3, 24, 100]))
        rows = []
        for number in range(1, dice.randrange(1, 12)):
            values = dict(dice.choice(WRONG)) if dice.random() < 0.5 else {}
            values = {"dph_base": dice.uniform(0.1, 4), "storage_cost": dice.uniform(0, 2), **values}
            made = row(resolved, number, **{"inet_down_cost": dice.uniform(0, 0.05), **values})
            if dice.random() < 0.2:
                made[dice.choice(list(made))] = dice.choice([None, float("nan"), -5, "?", [], {}])
            rows.append(made)
        found = suitable_offers(rows, resolved, limits)
        for one in found:
            assert 0 < one.price.hour <= limits.max_price, seed
            offer: Any = one.offer
            assert offer["disk_space"] >= resolved["rental"]["disk_gb"], seed
            assert offer["duration"] >= limits.hours * 3600, seed
            assert one.offer["gpu_name"] == "H100 NVL", seed
        assert [one.price.hour for one in found] == sorted(one.price.hour for one in found), seed
        if not found:
            assert no_offer_fits(rows, resolved, limits).problems, seed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("580.95.05", 580095005),
        ("570.26", 570026000),
        ("580.65.06", 580065006),
        ("", 0),
        ("N/A", 0),
        ("1.2.3.4", 1002003),
    ],
)
def test_drivers_are_compared_as_numbers(text: str, value: int) -> None:
    assert driver_number(text) == value


# --- the request ------------------------------------------------------------------------------------------


def test_the_request_is_on_demand_and_holds_no_secret(resolved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VAST_API_KEY", "HF_TOKEN", "DRAFTHOUSE_API_KEY"):
        monkeypatch.setenv(name, "s3cret-of-the-test")
    body = body_of(resolved, "drafthouse-0123456789-1800000000", 1800000000, 3, "https://console.vast.ai")
    assert "price" not in body, "a price would make it a bid"
    assert body["runtype"] == "ssh_direc ssh_proxy"
    assert body["image"] == "vllm/vllm-openai:v0.32.0"
    assert body["cancel_unavail"] is True
    assert len(body["onstart"]) <= LONGEST_ONSTART
    assert "1800000000" in body["onstart"]
    # A container that was stopped and started serves again what served.
    home = resolved["site"]["home"]
    assert f's={home}/served/start.sh; [ -x "$s" ] && "$s" ' in body["onstart"]
    assert "s3cret" not in str(body)


def test_only_what_is_to_be_reached_has_a_port(resolved: Any) -> None:
    def ports(**changed: Any) -> list[int]:
        changed_profile: Any = {**resolved, **changed}
        return ports_of(changed_profile)

    assert ports(gateway=None) == []
    assert ports(gateway={"port": 8443, "name": ""}) == [8443]
    assert ports(gateway=None, site={**resolved["site"], "host": "0.0.0.0"}) == [8000]


def test_an_engine_without_an_image_to_rent_with_is_said(resolved: Any) -> None:
    imageless: Any = {**resolved, "rental": {**resolved["rental"], "image": ""}}
    with pytest.raises(DrafthouseError, match="no image for vLLM"):
        body_of(imageless, "x", 1, 1, "https://console.vast.ai")


def test_a_container_that_starts_again_serves_what_served(tmp_path: Path) -> None:
    """The script's own last line, in a real shell; of a home with a space, too."""
    home = tmp_path / "a home"
    last = onstart_of(1800000000, 3, "https://console.vast.ai", str(home)).splitlines()[-1] + "\nwait\n"
    subprocess.run(["bash", "-c", last], check=True)
    (home / "served").mkdir(parents=True)
    (home / "served" / "start.sh").write_text(f'#!/bin/sh\n: >"{home}/started"\n')
    (home / "served" / "start.sh").chmod(0o755)
    done = subprocess.run(["bash", "-c", last], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (home / "started").exists()


def test_ssh_sessions_see_the_container_s_environment_and_none_of_its_secrets(resolved: Any, tmp_path: Path) -> None:
    """The script's own lines, in a real shell, on a file in the place of /etc/environment."""
    script = onstart_of(1800000000, 3, "https://console.vast.ai")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    own = script[script.index("sed -i") :].replace("/etc/environment", str(tmp_path / "environment"))
    own = own.replace("/workspace", str(tmp_path / "workspace"))
    (tmp_path / "environment").write_text('LANG="C.UTF-8"\n')
    secret = "s3cret-of-the-test"
    names = ("CONTAINER_API_KEY", "HF_TOKEN", "VAST_API_KEY", "CUDA_API_KEY", "DRAFTHOUSE_API_KEY", "MY_PASSWORD")
    seen = {
        "PATH": "/opt/engine/bin:/usr/bin:/bin",
        "VAST_TCP_PORT_22": "40022",
        "CONTAINER_ID": "31",
        "CUDA_HOME": "/c",
    }
    environ = {**dict.fromkeys(names, secret), **seen, "OTHER": "x\nPATH=/evil", "NVIDIA_X": f'"; {secret}'}
    for port in ("40022", "40023"):  # the ports may be others after a restart
        subprocess.run(["bash", "-c", own], env={**environ, "VAST_TCP_PORT_22": port}, check=True)
    text = (tmp_path / "environment").read_text()
    lines = text.splitlines()
    assert secret not in text and "/evil" not in text
    assert lines[0] == 'LANG="C.UTF-8"', "what was there stays"
    assert lines.count("VAST_TCP_PORT_22=40023") == 1 and "40022" not in text
    assert "CONTAINER_ID=31" in lines and "CUDA_HOME=/c" in lines
    assert (tmp_path / "workspace").is_dir()
