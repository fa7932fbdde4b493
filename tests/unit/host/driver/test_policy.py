"""What is done about a box's NVIDIA driver, from facts alone. Recorded texts say where they are from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.host.driver.facts import os_release, read_driver, read_lspci, translated
from drafthouse.host.driver.packages import RELEASES, leaving, pick, to_hold
from drafthouse.host.driver.plan import Plan, Wishes, branch_of, recognise
from drafthouse.host.driver.policy import choose, settle
from drafthouse.host.nvidia_smi import SmiAnswer, read_smi
from drafthouse.profiles.catalog import load_gpus
from drafthouse.profiles.catalog_types import Gpus
from drafthouse.profiles.workspace import ROOT
from tests.support.refusals import refuses

GPUS = load_gpus(ROOT)
UBUNTU24 = {"id": "ubuntu", "version_id": "24.04", "name": "Ubuntu 24.04.3 LTS"}
UBUNTU22 = {"id": "ubuntu", "version_id": "22.04", "name": "Ubuntu 22.04.5 LTS"}
UBUNTU25 = {"id": "ubuntu", "version_id": "25.04", "name": "Ubuntu 25.04"}
DEBIAN12 = {"id": "debian", "version_id": "12", "name": "Debian GNU/Linux 12 (bookworm)"}
DEBIAN13 = {"id": "debian", "version_id": "13", "name": "Debian GNU/Linux 13 (trixie)"}
OPEN_580 = ["nvidia-open-580", "nvidia-driver-580-open"]
CLOSED_580 = ["cuda-drivers-580", "nvidia-driver-580"]
NO_SMI: SmiAnswer = {"status": None, "output": "", "error": ""}
# nvidia-smi's own words, found word for word in many public reports of both failures.
MISMATCH: SmiAnswer = {
    "status": 18,
    "output": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n",
    "error": "",
}
NO_DRIVER: SmiAnswer = {
    "status": 9,
    "output": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
    "latest NVIDIA driver is installed and running.\n\n",
    "error": "",
}
NO_DEVICES: SmiAnswer = {"status": 6, "output": "No devices were found\n", "error": ""}


def device(number: str, driver: str = "", address: str = "0000:01:00.0") -> Any:
    return {"address": address, "id": number, "class": "0300", "name": "", "driver": driver}


def smi(version: str, name: str = "NVIDIA GeForce RTX 4090") -> Any:
    return {"status": 0, "output": f"{name}, {version}\n", "error": ""}


def box(*numbers: str, **changed: Any) -> Any:
    """The facts of a bare Ubuntu 24.04 with one RTX PRO 6000, unless they are changed."""
    devices = [device(number, address=f"0000:0{place}:00.0") for place, number in enumerate(numbers or ("2bb1",), 1)]
    return {
        "os": UBUNTU24,
        "architecture": "x86_64",
        "kernel": "6.8.0-31-generic",
        "pci": devices,
        "nvswitches": 0,
        "smi": NO_SMI,
        "loaded": {},
        "modules": [],
        "module_on_disk": "",
        "secure_boot": False,
        "module_key_enrolled": False,
        "packages": {"linux-image-generic": {"version": "6.8.0-31.31", "held": False}},
        "users": [],
        "runfile": False,
        "managed": False,
        "is_root": True,
        **changed,
    }


def plan(facts: Any, **wishes: Any) -> Plan:
    return choose(facts, Wishes(**wishes), GPUS)


def refused(facts: Any, **wishes: Any) -> list[Problem]:
    with pytest.raises(DrafthouseError) as caught:
        choose(facts, Wishes(**wishes), GPUS)
    for problem in caught.value.problems:
        assert problem.found and problem.needed and problem.do
    return caught.value.problems


# --- the cases that the role promises ------------------------------------------------------------------


def test_rtx_pro_6000_on_ubuntu_24_04() -> None:
    made = plan(box("2bb1"))
    assert (made.action, made.open, made.branch, made.reboot) == ("install", True, 580, False)
    assert made.needs == ["linux-headers-6.8.0-31-generic", "linux-headers-generic"]
    assert (made.pinning, made.driver) == (["nvidia-driver-pinning-580"], OPEN_580)
    assert made.repository == {
        "url": "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/",
        "key": "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub",
        "fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
    }
    assert made.cards == ["RTX PRO 6000 Blackwell Workstation Edition (blackwell) at 0000:01:00.0"]


def test_h100_on_ubuntu_22_04() -> None:
    made = plan(box("2330", os=UBUNTU22, kernel="5.15.0-119-generic"))
    assert (made.driver, made.open) == (OPEN_580, True)
    assert made.repository["url"].endswith("/ubuntu2204/x86_64/")
    assert made.needs[0] == "linux-headers-5.15.0-119-generic"


def test_rtx_4090_on_debian_12() -> None:
    packages = {"linux-image-amd64": {"version": "6.1.147-1", "held": False}}
    made = plan(box("2684", os=DEBIAN12, kernel="6.1.0-37-amd64", packages=packages))
    assert made.needs == ["linux-headers-6.1.0-37-amd64", "linux-headers-amd64"]
    assert (made.pinning, made.driver) == (["nvidia-driver-pinning-580"], ["nvidia-open"])


def test_debian_13_has_a_repository_and_a_key_of_its_own() -> None:
    made = plan(box("2684", os=DEBIAN13))
    assert made.repository["key"].endswith("/debian13/x86_64/8793F200.pub")
    assert made.repository["fingerprint"] == "02182E60104FCDC26EAE1B8597A5D4CB8793F200"


@pytest.mark.parametrize("version", ["580.65.06", "590.44.01", "610.43.03"])
def test_a_driver_that_is_good_enough_is_left_alone(version: str) -> None:
    # Neither processes, nor Secure Boot, nor a release that nobody knows matter then.
    facts = box("2684", smi=smi(version), loaded={"version": version, "open": False}, os=UBUNTU25, secure_boot=True)
    facts |= {"users": [{"pid": 7, "command": "vllm"}], "runfile": True, "is_root": False}
    made = plan(facts, open="true", source="distribution")
    assert (made.action, made.driver, made.needs, made.repository) == ("leave", [], [], {})
    assert version in made.why


def test_one_that_is_too_old_is_replaced() -> None:
    made = plan(box("2684", smi=smi("570.124.06"), loaded={"version": "570.124.06", "open": True}))
    assert (made.action, made.reboot) == ("install", True)
    assert "570.124.06 is older than branch 580" in made.why


def test_versions_that_are_mixed_need_a_reboot_and_no_package() -> None:
    facts = box("2684", smi=MISMATCH, loaded={"version": "580.95.05", "open": True})
    made = plan(facts, reboot="when_needed")
    assert (made.action, made.reboot, made.driver) == ("reboot", True, [])
    assert "580.95.05" in made.why and "580.173" in made.why
    (problem,) = refused(facts, reboot="never")
    assert "nvidia_driver_reboot=when_needed" in problem.do


def test_versions_that_are_mixed_and_too_old_are_replaced() -> None:
    old = {"status": 18, "output": "Driver/library version mismatch\nNVML library version: 535.183\n", "error": ""}
    made = plan(box("2684", smi=old, loaded={"version": "535.171.04", "open": False}))
    assert (made.action, made.driver) == ("install", OPEN_580)


def test_no_gpu() -> None:
    facts = box()
    facts["pci"] = []
    (problem,) = refused(facts)
    assert problem.code == "no-gpu"


def test_ubuntu_26_04_begins_with_branch_595() -> None:
    made = plan(box("2bb1", os={"id": "ubuntu", "version_id": "26.04", "name": "Ubuntu 26.04 LTS"}))
    assert (made.branch, made.driver) == (595, ["nvidia-open", "nvidia-driver-open"])
    assert made.repository["key"].endswith("/ubuntu2604/x86_64/8793F200.pub")


WSL = {"kernel": "6.6.87.2-microsoft-standard-WSL2", "pci": []}
GRID = {"nvidia-linux-grid-570": {"version": "570.124.06-1", "held": False}}


def test_windows_and_a_host_s_driver_are_left_alone_where_they_are_new_enough() -> None:
    made = plan(box(**WSL, smi=smi("580.95.05")))
    assert (made.action, made.cards) == ("leave", ["NVIDIA GeForce RTX 4090"])
    assert plan(box(smi=smi("580.95.05", "NVIDIA A40-48Q"), packages=GRID)).action == "leave"


@pytest.mark.parametrize(
    ("changed", "found", "do"),
    [
        (WSL, "WSL", "in Windows"),
        (WSL | {"smi": smi("560.94")}, "driver 560.94", "drafthouse_manage_host: false"),
        ({"packages": GRID, "smi": NO_DRIVER}, "nvidia-linux-grid-570", "guest driver"),
        ({"smi": smi("570.124.06", "GRID T4-16Q")}, "GRID T4-16Q", "runs the host"),
        ({"smi": smi("570.124.06", "NVIDIA H100XM-4-20C")}, "H100XM-4-20C", "runs the host"),
    ],
)
def test_a_driver_from_outside_is_never_replaced(changed: dict[str, Any], found: str, do: str) -> None:
    (problem,) = refused(box(**changed))
    assert problem.code == "driver-not-ours"
    assert found in problem.found
    assert do in problem.do


def test_a_gpu_that_a_virtual_machine_has() -> None:
    facts = box()
    facts["pci"] = [device("2bb1", "vfio-pci")]
    (problem,) = refused(facts)
    assert "vfio-pci" in problem.found
    facts["pci"].append(device("2684", address="0000:02:00.0"))
    assert plan(facts).cards == ["GeForce RTX 4090 (ada) at 0000:02:00.0"]


def test_nouveau_makes_a_reboot_needed() -> None:
    made = plan(box("2684", modules=["nouveau"]))
    assert made.reboot and "nouveau" in made.why


def test_secure_boot() -> None:
    facts = box("2684", secure_boot=True)
    (problem,) = refused(facts)
    assert problem.code == "secure-boot"
    assert "update-secureboot-policy" in problem.do and "nvidia_driver_source=distribution" in problem.do
    (problem,) = refused(box("2684", secure_boot=True, os=DEBIAN12))
    assert "dkms generate_mok" in problem.do and "distribution" not in problem.do
    (warning,) = plan(facts, secure_boot="warn").warnings
    assert "the kernel will refuse the driver" in warning and "mokutil --import" in warning
    assert plan(box("2684", secure_boot=True, module_key_enrolled=True)).warnings == []


def test_secure_boot_with_the_modules_that_canonical_signs() -> None:
    made = plan(box("2684", secure_boot=True), source="distribution", compute_only=True)
    assert made.driver == [
        "linux-modules-nvidia-580-server-open-generic",
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
    ]


@pytest.mark.parametrize(
    ("system", "compute_only", "number", "expected"),
    [
        (UBUNTU24, False, "2684", ["nvidia-open", "nvidia-driver-open"]),
        (UBUNTU24, True, "2684", ["libnvidia-compute", "nvidia-dkms-open"]),
        (DEBIAN13, False, "2684", ["nvidia-open"]),
        (DEBIAN13, True, "2684", ["nvidia-driver-cuda", "nvidia-kernel-open-dkms"]),
    ],
)
def test_branch_590_has_names_without_it(system: Any, compute_only: bool, number: str, expected: list[str]) -> None:
    made = plan(box(number, os=system), branch=590, compute_only=compute_only)
    assert made.driver == expected
    assert made.pinning == ["nvidia-driver-pinning-590"]


@pytest.mark.parametrize(
    ("system", "compute_only", "expected"),
    [
        (UBUNTU24, False, CLOSED_580),
        (UBUNTU24, True, ["libnvidia-compute-580", "nvidia-dkms-580", "nvidia-utils-580"]),
        (DEBIAN12, False, ["cuda-drivers"]),
        (DEBIAN12, True, ["nvidia-driver-cuda", "nvidia-kernel-dkms"]),
    ],
)
def test_proprietary_modules_on_request(system: Any, compute_only: bool, expected: list[str]) -> None:
    assert plan(box("2684", os=system), open="false", compute_only=compute_only).driver == expected


def test_compute_only_brings_nvidia_smi() -> None:
    assert plan(box("2684"), compute_only=True).driver == [
        "libnvidia-compute-580",
        "nvidia-dkms-580-open",
        "nvidia-utils-580",
    ]
    assert "nvidia-utils" in plan(box("2684"), compute_only=True, branch=590).optional


# --- what a GPU needs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "name", "generation", "modules"),
    [
        ("2bb1", "RTX PRO 6000 Blackwell Workstation Edition", "blackwell", "required"),
        ("2bb5", "RTX PRO 6000 Blackwell Server Edition", "blackwell", "required"),
        ("2b85", "GeForce RTX 5090", "blackwell", "required"),
        ("2901", "B200", "blackwell", "required"),
        ("2e12", "GB10", "blackwell", "required"),
        ("2342", "GH200", "grace-hopper", "required"),
        ("2330", "H100 80GB HBM3 (SXM)", "hopper", "recommended"),
        ("2331", "H100 PCIe", "hopper", "recommended"),
        ("2321", "H100 NVL", "hopper", "recommended"),
        ("2335", "H200 (SXM)", "hopper", "recommended"),
        ("20B2", "A100-SXM4-80GB", "ampere", "recommended"),
        ("26b9", "L40S", "ada", "recommended"),
        ("2684", "GeForce RTX 4090", "ada", "recommended"),
        ("2204", "GeForce RTX 3090", "ampere", "recommended"),
        ("1b06", "GeForce GTX 1080 Ti", "pascal", "impossible"),
        ("1380", "GeForce GTX 750 Ti", "maxwell", "impossible"),
        # Not named in the table: by the range of its id.
        ("2c02", "10de:2c02", "blackwell", "required"),
        ("2489", "10de:2489", "ampere", "recommended"),
        ("1eb1", "10de:1eb1", "turing", "recommended"),
        ("1cb3", "10de:1cb3", "pascal", "impossible"),
        ("4000", "10de:4000", "", ""),
    ],
)
def test_every_card_is_known(number: str, name: str, generation: str, modules: str) -> None:
    (card,) = recognise([device(number)], GPUS)
    assert (card.name, card.generation, card.open) == (name, generation, modules)


def test_named_cards_and_ranges_agree() -> None:
    for number, entry in GPUS["cards"].items():
        nameless: Gpus = {**GPUS, "cards": {}}
        (card,) = recognise([device(number)], nameless)
        assert card.generation == entry["generation"], number


def test_ranges_do_not_overlap() -> None:
    edges = [(int(r["first"], 16), int(r["last"], 16)) for r in GPUS["ranges"]]
    for first, last in edges:
        assert first <= last
        assert sum(a <= last and first <= b for a, b in edges) == 1


@pytest.mark.parametrize("number", ["1380", "1b06", "1db4"])
def test_gpus_that_cuda_13_has_dropped_are_refused(number: str) -> None:
    (problem,) = refused(box(number))
    assert problem.code == "gpu-too-old"


def test_one_of_them_with_a_driver_that_works_is_warned_about() -> None:
    made = plan(box("1b06", smi=smi("580.95.05")))
    assert made.action == "leave" and "CUDA 13 has dropped it" in made.warnings[0]


def test_proprietary_modules_do_not_bind_to_blackwell() -> None:
    (problem,) = refused(box("2bb1"), open="false")
    assert "nvidia_driver_open" in problem.found


def test_an_old_card_beside_a_newer_one_decides_for_both() -> None:
    made = plan(box("2684", "1b06"))
    assert (made.open, made.driver) == (False, CLOSED_580)
    assert "GTX 1080 Ti" in made.warnings[0]
    (problem,) = refused(box("2684", "1b06"), branch=590)
    assert "which branch 590 no longer supports" in problem.found
    assert plan(box("2684", "1b06"), branch=590, open="true").driver == ["nvidia-open", "nvidia-driver-open"]


def test_an_old_card_beside_blackwell_cannot_be_served() -> None:
    (problem,) = refused(box("2bb1", "1b06"))
    assert "one driver" in problem.needed
    assert plan(box("2bb1", "1b06"), open="true").driver == OPEN_580


def test_a_card_that_nobody_knows_is_asked_about() -> None:
    (problem,) = refused(box("4000"))
    assert "10de:4000" in problem.found and problem.code == "gpu-unknown"
    assert plan(box("4000"), open="true").driver == OPEN_580
    assert plan(box("4000"), open="false").driver == CLOSED_580


def test_a_branch_before_the_card_was_known() -> None:
    (problem,) = refused(box("2bb1"), branch=565)
    assert problem.do == "nvidia_driver_branch=570"


def test_nvswitches_are_mentioned() -> None:
    assert "802" in plan(box("2330", nvswitches=4)).warnings[0]


# --- where it comes from ---------------------------------------------------------------------------------


def test_another_release_is_offered_its_own_package() -> None:
    (problem,) = refused(box("2bb1", os=UBUNTU25))
    assert "Ubuntu 25.04" in problem.found and "nvidia_driver_source=distribution" in problem.do
    made = plan(box("2bb1", os=UBUNTU25), source="distribution")
    assert (made.driver, made.repository, made.pinning) == (["nvidia-driver-580-server-open"], {}, [])


def test_another_distribution() -> None:
    fedora = {"id": "fedora", "version_id": "42", "name": "Fedora Linux 42"}
    for source in ("nvidia", "distribution"):
        (problem,) = refused(box("2bb1", os=fedora), source=source)
        assert "Fedora Linux 42" in problem.found


def test_processors() -> None:
    assert "/ubuntu2404/sbsa/" in plan(box("2e12", architecture="aarch64")).repository["url"]
    (problem,) = refused(box("2684", architecture="aarch64", os=DEBIAN12))
    assert "aarch64" in problem.found


def test_debians_own() -> None:
    facts = box("2684", os=DEBIAN12)
    assert plan(facts, source="distribution").driver == ["nvidia-open-kernel-dkms", "nvidia-driver", "nvidia-smi"]
    bare = plan(facts, source="distribution", compute_only=True, open="false")
    assert bare.driver == ["nvidia-kernel-dkms", "libcuda1", "nvidia-smi"]


def test_a_mirror() -> None:
    made = plan(
        box(),
        repository_url="http://mirror.example/cuda",
        repository_key="http://mirror.example/key.asc",
        repository_fingerprint="ab cd" * 10,
    )
    assert made.repository == {
        "url": "http://mirror.example/cuda/",
        "key": "http://mirror.example/key.asc",
        "fingerprint": "ABCD" * 10,
    }


def test_headers_follow_the_kernels_that_are_installed() -> None:
    names = ["linux-image-generic-hwe-24.04", "linux-image-6.8.0-31-generic", "linux-image-unsigned-6.8.0-31-generic"]
    facts = box(packages={name: {"version": "6.8", "held": False} for name in names})
    assert plan(facts).needs == ["linux-headers-6.8.0-31-generic", "linux-headers-generic-hwe-24.04"]


# --- what is in the way ------------------------------------------------------------------------------------


def test_a_driver_in_use_is_not_touched_without_being_told() -> None:
    facts = box("2684", smi=smi("570.124.06"), loaded={"version": "570.124.06", "open": True})
    facts["users"] = [{"pid": number, "command": "python3"} for number in range(100, 109)]
    (problem,) = refused(facts)
    assert "python3 (100)" in problem.found and "and 3 more" in problem.found
    assert "nvidia_driver_force=true" in problem.do
    assert plan(facts, force=True).action == "install"
    mixed = {**facts, "smi": MISMATCH}
    (problem,) = refused(mixed, reboot="when_needed")
    assert "a reboot would end them" in problem.needed


def test_a_driver_from_a_run_file() -> None:
    (problem,) = refused(box("2684", runfile=True))
    assert "nvidia-uninstall" in problem.do


def test_packages_that_somebody_holds() -> None:
    facts = box("2684", smi=smi("570.124.06"), loaded={"version": "570.124.06", "open": True})
    facts["packages"] = {"nvidia-open-570": {"version": "570.124.06-1", "held": True}}
    (problem,) = refused(facts)
    assert "nvidia-open-570" in problem.found and "apt-mark unhold nvidia-open-570" in problem.do
    # What an earlier run of ours holds is ours to let go.
    assert plan({**facts, "managed": True}).unhold == ["nvidia-open-570"]
    assert plan(facts, force=True).unhold == ["nvidia-open-570"]


def test_without_root() -> None:
    (problem,) = refused(box("2684", is_root=False))
    assert "become" in problem.do


def test_every_reason_is_told_at_once() -> None:
    facts = box("2bb1", os=UBUNTU25, secure_boot=True, runfile=True, is_root=False)
    assert len(refused(facts, open="false")) == 5


def test_the_wrong_kind_of_module_is_replaced() -> None:
    # The proprietary module is loaded and does not bind to Blackwell.
    facts = box("2bb1", smi=NO_DEVICES, loaded={"version": "580.95.05", "open": False}, module_on_disk="580.95.05")
    made = plan(facts)
    assert (made.action, made.driver) == ("install", OPEN_580)
    assert "proprietary" in made.why


def test_an_installation_that_waits_for_its_first_boot() -> None:
    facts = box("2684", smi=NO_DRIVER, modules=["nouveau"], module_on_disk="580.95.05")
    assert plan(facts, reboot="when_needed").action == "reboot"
    # Without nvidia-smi only half of it is there.
    assert plan({**facts, "smi": NO_SMI}).action == "install"
    # The modules were not built for the kernel that runs: its headers are what is missing.
    assert plan({**facts, "module_on_disk": ""}).action == "install"


def test_the_right_driver_that_shows_no_gpu_is_not_installed_again() -> None:
    """NVIDIA/open-gpu-kernel-modules#862: the firmware is to blame; nor does a reboot help."""
    facts = box("2684", smi=NO_DEVICES, loaded={"version": "580.95.05", "open": True}, module_on_disk="580.95.05")
    with refuses("driver-not-working", match="(?s)No devices were found.*Above 4G decoding"):
        plan(facts)
    # Of the other kind, or another version than the one on the disk, it may well be the driver.
    assert plan({**facts, "loaded": {"version": "580.95.05", "open": False}}).action == "install"
    assert plan({**facts, "module_on_disk": "580.65.06"}).action == "install"


def test_a_library_without_its_module_is_installed_and_no_reason_to_reboot() -> None:
    """The kernel runs the module that is installed already: DKMS failed, or an upgrade stopped half-way."""
    facts = box("2bb1", smi=MISMATCH, loaded={"version": "580.65.06", "open": True}, module_on_disk="580.65.06")
    made = plan(facts)
    assert (made.action, "kernel module 580.65.06, library 580.173" in made.why) == ("install", True)


# --- picking -----------------------------------------------------------------------------------------------


def picked(made: Plan, versions: dict[str, list[str]], check: bool = False) -> dict[str, list[str]]:
    return pick(made.as_dict(), versions, check)


HEADERS = {"linux-headers-6.8.0-31-generic": ["6.8.0-31.31"], "linux-headers-generic": ["6.8.0-31.31"]}


def test_the_newest_of_the_branch_is_picked() -> None:
    versions = {
        **HEADERS,
        "nvidia-driver-pinning-580": ["580-5"],
        "nvidia-open": ["590.48.01-1", "580.126.20-1", "580.95.05-1"],
    }
    made = picked(plan(box("2684", os=DEBIAN12)), versions)
    assert made["driver"] == ["nvidia-open=580.126.20-1"]
    assert made["pinning"] == ["nvidia-driver-pinning-580"]


def test_what_is_optional_may_be_missing() -> None:
    versions = {
        **HEADERS,
        "nvidia-driver-pinning-590": ["590-2"],
        "libnvidia-compute": ["590.48.01-1"],
        "nvidia-dkms-open": ["590.48.01-1"],
        "nvidia-persistenced": ["590.48.01-1", "580.95.05-1"],
    }
    made = picked(plan(box("2684"), branch=590, compute_only=True), versions)
    assert made["driver"] == [
        "libnvidia-compute=590.48.01-1",
        "nvidia-dkms-open=590.48.01-1",
        "nvidia-persistenced=590.48.01-1",
    ]


def test_what_is_missing_is_named_before_anything_is_installed() -> None:
    with pytest.raises(DrafthouseError) as caught:
        picked(plan(box("2684")), {})
    headers, packages = caught.value.problems
    assert "linux-headers-6.8.0-31-generic" in headers.found
    assert "nvidia-driver-pinning-580, nvidia-open-580, nvidia-driver-580-open" in packages.found
    # A bare machine has no index of its distribution yet, and check mode fetches none.
    with pytest.raises(DrafthouseError) as caught:
        picked(plan(box("2684")), {}, check=True)
    assert len(caught.value.problems) == 1


def test_a_branch_that_the_repository_has_not() -> None:
    versions = {**HEADERS, "nvidia-driver-pinning-580": ["580-5"], "nvidia-open": ["590.48.01-1"]}
    with pytest.raises(DrafthouseError) as caught:
        picked(plan(box("2684", os=DEBIAN12)), versions)
    (problem,) = caught.value.problems
    assert "only as 590.48.01-1" in problem.found


def test_a_distribution_whose_driver_is_too_old() -> None:
    made = plan(box("2684", os=DEBIAN12), source="distribution")
    versions = {**HEADERS, **{name: ["535.261.03-1~deb12u1"] for name in made.driver}}
    with pytest.raises(DrafthouseError) as caught:
        picked(made, versions)
    assert all(problem.do == "nvidia_driver_source=nvidia" for problem in caught.value.problems)
    newer = {**HEADERS, **{name: ["590.48.01-2"] for name in made.driver}}
    assert picked(made, newer)["driver"] == made.driver


def test_an_archive_without_its_driver_component() -> None:
    with pytest.raises(DrafthouseError) as caught:
        picked(plan(box("2684", os=DEBIAN12), source="distribution"), HEADERS)
    (problem,) = caught.value.problems
    assert "non-free" in problem.do
    assert picked(plan(box("2684", os=DEBIAN12), source="distribution"), {}, check=True)["driver"] == []


# --- afterwards ----------------------------------------------------------------------------------------------


def test_all_parts_of_the_driver_are_held_and_nothing_else() -> None:
    names = {
        "nvidia-open-580": "580.95.05-1ubuntu1",
        "nvidia-driver-580-open": "580.95.05-1ubuntu1",
        "libnvidia-compute-580": "580.95.05-1ubuntu1",
        "nvidia-dkms-580-open": "580.95.05-1ubuntu1",
        "xserver-xorg-video-nvidia-580": "580.95.05-1ubuntu1",
        "libcuda1": "580.95.05-1",
        # These have lives of their own.
        "nvidia-driver-pinning-580": "580-5ubuntu1",
        "nvidia-container-toolkit": "1.20.0-1",
        "libnvidia-container1": "1.20.0-1",
        "nvidia-cuda-toolkit": "580.0.1",
        "linux-image-generic": "6.8.0-31.31",
        "libnvidia-egl-wayland1": "1:1.1.13-1build1",
    }
    facts = box(packages={name: {"version": version, "held": False} for name, version in names.items()})
    facts["packages"]["libcuda1"]["held"] = True
    assert to_hold(facts) == [
        "libnvidia-compute-580",
        "nvidia-dkms-580-open",
        "nvidia-driver-580-open",
        "nvidia-open-580",
        "xserver-xorg-video-nvidia-580",
    ]
    assert to_hold(box(packages={})) == []
    assert to_hold(box(packages={"nvidia-prime": {"version": "0.8.17.2", "held": False}})) == []


def test_what_goes_with_a_driver_of_ours() -> None:
    parts = {
        name: {"version": "580.95.05-1", "held": True}
        for name in (
            "nvidia-open-580",
            "libnvidia-compute-580",
            "nvidia-driver-pinning-580",
            "nvidia-container-toolkit",
        )
    }
    ours = box("2684", packages=parts, managed=True)
    assert leaving(ours, Wishes()) == ["libnvidia-compute-580", "nvidia-driver-pinning-580", "nvidia-open-580"]
    assert leaving(box(packages={}), Wishes()) == []
    with refuses("driver-not-ours"):
        leaving(box("2684", packages=parts), Wishes())
    used: Any = {**ours, "users": [{"pid": 7, "command": "python3"}]}
    with pytest.raises(DrafthouseError, match=r"python3 \(7\)"):
        leaving(used, Wishes())
    assert leaving(used, Wishes(force=True)) == leaving(ours, Wishes())


def test_the_end() -> None:
    good = box("2684", smi=smi("580.95.05"))
    assert settle(good, Wishes(), rebooted=False) == {"version": "580.95.05", "reboot": False}
    waiting = box("2684", smi=NO_DRIVER, modules=["nouveau"])
    assert settle(waiting, Wishes(reboot="when_needed"), rebooted=False) == {"version": "", "reboot": True}
    with pytest.raises(DrafthouseError, match="still runs nouveau"):
        settle(waiting, Wishes(), rebooted=False)
    with pytest.raises(DrafthouseError, match="dkms status"):
        settle(waiting, Wishes(reboot="when_needed"), rebooted=True)
    locked: Any = {**waiting, "secure_boot": True}
    with pytest.raises(DrafthouseError, match="mokutil --import"):
        settle(locked, Wishes(reboot="when_needed", secure_boot="warn"), rebooted=False)


# --- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "branch"),
    [("580.95.05", 580), ("580.95.05-1ubuntu1", 580), ("1:590.48.01-1", 590), ("", 0), ("580-5", 0), ("[N/A]", 0)],
)
def test_branches(version: str, branch: int) -> None:
    assert branch_of(version) == branch


def test_nvidia_smis_answers() -> None:
    assert read_smi(smi("580.95.05")).version == "580.95.05"
    # Several GPUs, and a name with a comma in it (made).
    several: SmiAnswer = {
        "status": 0,
        "output": "NVIDIA H100, 80GB, 580.95.05\nNVIDIA H100, 80GB, 580.95.05\n",
        "error": "",
    }
    assert read_smi(several).works
    assert read_smi(MISMATCH).mismatch and read_smi(MISMATCH).library == "580.173"
    assert not read_smi(NO_DRIVER).works and "couldn't communicate" in read_smi(NO_DRIVER).text
    assert not read_smi(NO_DEVICES).works
    assert read_smi(NO_SMI).text == ""
    assert not read_smi({"status": 0, "output": "", "error": ""}).works


# Lines of `lspci -nn` from public reports: RTX PRO 6000 servers, an H100 host, a GTX 750 Ti, a GB10, an AST2500.
LSPCI = """\
0000:02:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000] (rev 52)
0000:38:00.0 3D controller [0302]: NVIDIA Corporation GB202GL [RTX PRO 6000 Blackwell Server Edition] [10de:2bb5]
000f:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation Device [10de:2e12] (rev a1)
0000:00:00.0 PCI bridge [0604]: NVIDIA Corporation Device [10de:22ce] (rev 01)
04:00.0 VGA compatible controller [0300]: NVIDIA Corporation GM107 [GeForce GTX 750 Ti] [10de:1380] (rev a2)
04:00.1 Audio device [0403]: NVIDIA Corporation GM107 High Definition Audio Controller [GeForce 940MX] [10de:0fbc]
0000:83:00.0 Bridge [0680]: NVIDIA Corporation GH100 [H100 NVSwitch] [10de:22a3] (rev a1)
"""


def test_lspci() -> None:
    found = {(entry["address"], entry["id"], entry["class"], entry["name"]) for entry in read_lspci(LSPCI)}
    assert found == {
        ("0000:38:00.0", "2bb5", "0302", "RTX PRO 6000 Blackwell Server Edition"),
        ("000f:01:00.0", "2e12", "0300", ""),
        ("0000:00:00.0", "22ce", "0604", ""),
        ("0000:04:00.0", "1380", "0300", "GeForce GTX 750 Ti"),
        ("0000:04:00.1", "0fbc", "0403", "GeForce 940MX"),
        ("0000:83:00.0", "22a3", "0680", "H100 NVSwitch"),
    }


def test_os_release() -> None:
    text = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\nVERSION_ID="24.04"\n# ID=no\nID_LIKE=debian\n'
    assert os_release(text) == {"id": "ubuntu", "version_id": "24.04", "name": "Ubuntu 24.04.3 LTS"}
    assert os_release("") == {"id": "", "version_id": "", "name": ""}


def card_in_sysfs(sys: Path, address: str, number: str, kind: str = "0x030000", driver: str = "") -> None:
    folder = sys / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, value in (("vendor", "0x10de"), ("device", f"0x{number}"), ("class", kind)):
        (folder / name).write_text(f"{value}\n")
    if driver:
        (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


@pytest.mark.processes
def test_a_box_is_read_from_its_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sys, proc, tools = tmp_path / "sys", tmp_path / "proc", tmp_path / "bin"
    tools.mkdir()
    card_in_sysfs(sys, "0000:01:00.0", "2bb1", driver="nvidia")
    card_in_sysfs(sys, "0000:01:00.1", "22e8", "0x040300")
    card_in_sysfs(sys, "0000:05:00.0", "22a3", "0x068000")
    efi = sys / "firmware/efi/efivars"
    efi.mkdir(parents=True)
    (efi / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\0\0\0\x01")
    (proc / "driver/nvidia").mkdir(parents=True)
    # Recorded from a rented RTX 5090's host, public report.
    (proc / "driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
        "(dvs-builder@U22-I3-B17-02-5)  Tue Sep 23 09:55:41 UTC 2025\n"
        "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)\n"
    )
    (proc / "modules").write_text("nvidia_uvm 1 0\nnvidia 2 1\next4 1 0\n")
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "sys/kernel/osrelease").write_text("6.8.0-31-generic\n")
    for pid, command, target in ((10, "python3", "/dev/nvidia0"), (11, "nvidia-persistenced", "/dev/nvidia0")):
        (proc / str(pid) / "fd").mkdir(parents=True)
        (proc / str(pid) / "comm").write_text(f"{command}\n")
        (proc / str(pid) / "fd/3").symlink_to(target)
    for name, text in (("nvidia-smi", "echo 'NVIDIA X, 580.95.05'"), ("modinfo", "echo 580.95.05"), ("lspci", "true")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    facts = read_driver(str(sys), str(proc), managed_by=str(proc / "modules"))
    assert [entry["id"] for entry in facts["pci"]] == ["2bb1"]
    assert facts["pci"][0]["driver"] == "nvidia"
    assert (facts["nvswitches"], facts["secure_boot"], facts["kernel"]) == (1, True, "6.8.0-31-generic")
    assert facts["loaded"] == {"version": "580.95.05", "open": True}
    assert facts["modules"] == ["nvidia", "nvidia_uvm"]
    assert facts["users"] == [{"pid": 10, "command": "python3"}]
    assert facts["module_on_disk"] == "580.95.05" and facts["managed"]
    assert plan(facts).action == "leave"
    (efi / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\0\0\0\0")
    assert not read_driver(str(sys), str(proc))["secure_boot"]


@pytest.mark.processes
def test_a_proprietary_module_is_told_from_an_open_one(tmp_path: Path) -> None:
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    # Recorded, public report.
    (tmp_path / "driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.135  Fri Jan 10 20:00:00 UTC 2025\n"
    )
    assert read_driver(str(tmp_path), str(tmp_path))["loaded"] == {"version": "550.135", "open": False}


@pytest.mark.processes
def test_a_box_without_anything_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = read_driver(str(tmp_path), str(tmp_path))
    assert (facts["pci"], facts["smi"]["status"], facts["packages"], facts["secure_boot"]) == ([], None, {}, False)
    assert refused({**facts, "is_root": True})[0].found.startswith("no NVIDIA GPU")


# --- the table --------------------------------------------------------------------------------------------------


def test_a_spoilt_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "profiles/catalog/gpus.yml"
    path.parent.mkdir(parents=True)
    good = yaml.safe_load((ROOT / "profiles/catalog/gpus.yml").read_text())
    good["cards"]["2684"]["generation"] = "adda"
    good["generations"]["turing"]["open"] = "maybe"
    path.write_text(yaml.safe_dump(good))
    with pytest.raises(DrafthouseError) as caught:
        load_gpus(tmp_path)
    assert "generations.turing.open" in caught.value.problems[0].where
    good["generations"]["turing"]["open"] = "recommended"
    path.write_text(yaml.safe_dump(good))
    with pytest.raises(DrafthouseError) as caught:
        load_gpus(tmp_path)
    (problem,) = caught.value.problems
    assert problem.where.endswith("cards.2684") and problem.do == "write 'ada'"


def test_ids_are_written_as_sysfs_writes_them() -> None:
    numbers = [*GPUS["cards"], *(entry[key] for entry in GPUS["ranges"] for key in ("first", "last"))]
    assert all(re.fullmatch(r"[0-9a-f]{4}", number) for number in numbers)


def test_fingerprints_end_as_the_key_files_are_named() -> None:
    for release in RELEASES.values():
        assert re.fullmatch(r"[0-9A-F]{40}", release.fingerprint)
        assert release.fingerprint.endswith(release.key.removesuffix(".pub").upper())


def test_a_card_behind_an_iommu_that_translates_is_named(tmp_path: Path) -> None:
    for address, kind in (("0000:01:00.0", "DMA-FQ"), ("0000:02:00.0", "identity"), ("0000:03:00.0", None)):
        folder = tmp_path / "bus/pci/devices" / address / "iommu_group"
        folder.mkdir(parents=True)
        if kind:
            (folder / "type").write_text(f"{kind}\n")
    cards = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"]
    assert translated(cards, tmp_path) == ["0000:01:00.0"]
