"""The role nvidia_driver on real hosts, against a signed apt repository of tiny packages with the real names.

What is real: systemd, SSH, apt, dpkg, its holds and pins, the reboot, the signatures. What is made: the kernel. A
module is a file of its package, a small program of the host "boots" it, and an nvidia-smi, which comes out of the
package as the real one does, speaks for it with the real one's words. Ubuntu is simulated: Debian 12 with Ubuntu's
os-release. Where a text of lspci is from stands beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosts.debs import MAINTAINER, Deb, Signer, publish, served
from tests.hosts.hosts import Ended, Host, Lab

SYS, PROC = "/opt/box/sys", "/run/box/proc"
UBUNTU24 = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS (simulated: Debian 12)"\n'
UBUNTU25 = 'ID=ubuntu\nVERSION_ID="25.04"\nPRETTY_NAME="Ubuntu 25.04 (simulated: Debian 12)"\n'
UBUNTU_KERNEL, DEBIAN_KERNEL = "6.8.0-31-generic", "6.1.0-37-amd64"
# Lines of `lspci -nn -D` from public reports (an RTX 4090 passed to a virtual machine; an H100 host; a server's BMC).
LSPCI_4090 = (
    "0000:01:00.0 VGA compatible controller [0300]: NVIDIA Corporation AD102 [GeForce RTX 4090] [10de:2684] (rev a1)\n"
    "0000:01:00.1 Audio device [0403]: NVIDIA Corporation AD102 High Definition Audio Controller [10de:22ba] (rev a1)\n"
)
LSPCI_BMC = (
    "0000:02:00.0 VGA compatible controller [0300]: ASPEED Technology, Inc. ASPEED Graphics Family [1a03:2000]\n"
)

# The made kernel's boot: nouveau takes the GPU unless it is kept away, else the module that is installed is loaded.
BOOT = f"""#!/bin/sh
mkdir -p {PROC}/sys/kernel {PROC}/driver/nvidia
cat /opt/box/kernel >{PROC}/sys/kernel/osrelease
: >{PROC}/modules
if [ -e /opt/box/nouveau ] && ! grep -qs '^blacklist nouveau' /etc/modprobe.d/*.conf; then
  echo 'nouveau 2306048 1 - Live 0x0' >{PROC}/modules
elif [ -e /usr/lib/made-module ] && [ ! -e /opt/box/refused ]; then
  echo 'nvidia 9732096 1 - Live 0x0' >{PROC}/modules
  echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  $(cat /usr/lib/made-module)  Release Build  (made)" \\
    >{PROC}/driver/nvidia/version
fi
"""
BOOT_UNIT = """[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/opt/box/boot
[Install]
WantedBy=sysinit.target
"""
# Called for the first time without a module, the real one loads it, too (through nvidia-modprobe).
SMI = f"""#!/bin/sh
library=@VERSION@
echo "$*" >>/run/box/smi-calls
[ -s {PROC}/modules ] || /opt/box/boot
loaded=$(sed -n 's/.*x86_64  \\([0-9.]*\\) .*/\\1/p' {PROC}/driver/nvidia/version 2>/dev/null)
if [ -z "$loaded" ]; then
  echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest" \\
    "NVIDIA driver is installed and running."
  exit 9
fi
if [ "$loaded" != "$library" ]; then
  echo "Failed to initialize NVML: Driver/library version mismatch"
  echo "NVML library version: ${{library%.*}}"
  exit 18
fi
case "$*" in
  *--query-gpu*) echo "$(cat /opt/box/name), $library" ;;
  "-pm 1") echo "Enabled persistence mode for GPU 00000000:01:00.0."; touch /run/box/persistent ;;
esac
"""
MODINFO = "#!/bin/sh\ncat /usr/lib/made-module 2>/dev/null\n"


def one_of(base: str, name: str, version: str, *, depends: str = "", files: dict[str, Any] | None = None) -> Deb:
    """A part of a driver: only one of its kind can be there, whatever its branch."""
    relations = {"Provides": f"made-{base}", "Conflicts": f"made-{base}", "Replaces": f"made-{base}"}
    if depends:
        relations["Depends"] = depends
    return Deb(name, version, relations, files or {})


def module(name: str, version: str) -> Deb:
    return one_of("module", name, version, files={"/usr/lib/made-module": (f"{number(version)}\n", 0o644)})


def tools(name: str, version: str) -> Deb:
    text = SMI.replace("@VERSION@", number(version))
    return one_of("tools", name, version, files={"/usr/bin/nvidia-smi": (text, 0o755)})


def number(version: str) -> str:
    """580.95.05-1ubuntu1 -> 580.95.05."""
    return version.partition("-")[0]


def pinning(branch: int, version: str) -> Deb:
    text = f"Package: *nvidia* cuda-drivers* libcuda1\nPin: version {branch}.*\nPin-Priority: 1000\n"
    name = f"nvidia-driver-pinning-{branch}"
    relations = {"Provides": "nvidia-driver-pinning", "Conflicts": "nvidia-driver-pinning"}
    return Deb(name, version, relations, {f"/etc/apt/preferences.d/{name}": (text, 0o644)})


def with_branch(branch: int, version: str) -> list[Deb]:
    """NVIDIA's names for Ubuntu up to branch 580."""
    exact = f"nvidia-dkms-{branch}-open (= {version}), libnvidia-compute-{branch} (= {version}), "
    exact += f"nvidia-utils-{branch} (= {version})"
    either = f"nvidia-driver-{branch}-open | nvidia-driver-{branch}-server-open"
    return [
        Deb(f"nvidia-open-{branch}", version, {"Depends": either}),
        Deb(f"nvidia-driver-{branch}-open", version, {"Depends": exact}),
        one_of("compute", f"libnvidia-compute-{branch}", version),
        module(f"nvidia-dkms-{branch}-open", version),
        tools(f"nvidia-utils-{branch}", version),
    ]


def without_branch(version: str) -> list[Deb]:
    """NVIDIA's names for Ubuntu from branch 590 on."""
    parts = ("nvidia-dkms-open", "libnvidia-compute", "nvidia-utils")
    return [
        Deb("nvidia-open", version, {"Depends": f"nvidia-driver-open (= {version})"}),
        Deb("nvidia-driver-open", version, {"Depends": ", ".join(f"{part} (= {version})" for part in parts)}),
        one_of("compute", "libnvidia-compute", version),
        module("nvidia-dkms-open", version),
        tools("nvidia-utils", version),
    ]


def debians(version: str) -> list[Deb]:
    """NVIDIA's names for Debian. They depend on any newer version: only the pin keeps the branch together."""
    floor = "(>= 580.65.06)"
    depends = f"nvidia-driver-cuda {floor}, nvidia-kernel-open-dkms {floor}"
    return [
        Deb("nvidia-open", version, {"Depends": depends}),
        tools("nvidia-driver-cuda", version),
        module("nvidia-kernel-open-dkms", version),
    ]


PINS = [pinning(580, "580-5ubuntu1"), pinning(590, "590-2ubuntu1")]
UBUNTU = [
    *with_branch(570, "570.211.01-1ubuntu1"),
    *with_branch(580, "580.95.05-1ubuntu1"),
    *without_branch("590.48.01-1ubuntu1"),
    *without_branch("610.43.02-1ubuntu1"),
    *PINS,
    # CUDA's repository has more than drivers: nothing of that may come in by itself.
    Deb("made-bystander", "9.0"),
    Deb("nvidia-container-toolkit", "1.20.0-1"),
]
LATER = [*UBUNTU, *with_branch(580, "580.126.20-1ubuntu1")]
DEBIAN = [*debians("580.95.05-1"), *debians("590.48.01-1"), *PINS]
ARCHIVE = [
    Deb("made-bystander", "1.0"),
    Deb("nvidia-container-toolkit", "1.19.0-1"),
    *(Deb(f"linux-headers-{kernel}", "1.0") for kernel in (UBUNTU_KERNEL, DEBIAN_KERNEL, "generic", "amd64")),
    *(Deb(f"linux-image-{flavour}", "1.0") for flavour in ("generic", "amd64")),
    *(
        Deb("nvidia-driver-580-server-open", "580.95.05-0ubuntu0.25.04.1", {"Depends": "made-own-driver"}),
        tools("made-own-driver", "580.95.05-0ubuntu0.25.04.1"),
    ),
    module("made-own-module", "580.95.05-0ubuntu0.25.04.1"),
]


@dataclass(frozen=True)
class Shelf:
    """The repositories that the hosts reach, and whose signature is on them."""

    url: str
    folder: Path
    signer: Signer
    stranger: Signer

    def of(self, name: str) -> dict[str, str]:
        """The role's variables for one of the repositories."""
        return {
            "nvidia_driver_repository_url": f"{self.url}/{name}",
            "nvidia_driver_repository_key": f"{self.url}/{name}/key.pub",
            "nvidia_driver_repository_fingerprint": self.signer.fingerprint,
        }


@pytest.fixture(scope="module")
def shelf(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    keys = tmp_path_factory.mktemp("k")
    folder = tmp_path_factory.mktemp("shelf")
    signer, stranger = Signer(keys, "nvidia"), Signer(keys, "stranger")
    for name, debs in (("ubuntu", UBUNTU), ("later", LATER), ("debian", DEBIAN), ("archive", ARCHIVE)):
        publish(folder / name, debs, signer, name)
    publish(folder / "stranger", UBUNTU, stranger, "stranger")
    (folder / "stranger/key.pub").write_bytes(signer.public)
    publish(folder / "changed", UBUNTU, signer, "changed")
    text = (folder / "changed/InRelease").read_text()
    (folder / "changed/InRelease").write_text(text.replace("Label: changed", "Label: Changed"))
    lab.network.reload()
    with served(folder, lab.network.attrs["IPAM"]["Config"][0]["Gateway"]) as url:
        yield Shelf(url, folder, signer, stranger)
    for one in (signer, stranger):
        one.end()


class Box:
    """A host with made hardware, as the role sees it; `fresh` makes it a bare machine again."""

    def __init__(self, host: Host, shelf: Shelf) -> None:
        self.host, self.shelf = host, shelf
        host.exec("sh", "-c", "apt-get -qq update && apt-get -qq install -y python3-apt </dev/null", timeout=300)
        host.exec("sh", "-c", "cp /etc/os-release /root/os-release; rm /etc/apt/sources.list.d/*")
        host.put("/etc/apt/sources.list.d/archive.list", f"deb [trusted=yes] {shelf.url}/archive /\n")
        host.put("/etc/systemd/system/made-boot.service", BOOT_UNIT)
        host.put("/usr/local/bin/modinfo", MODINFO, "0755")
        host.exec("ln", "-sf", "/opt/box/boot", "/usr/local/sbin/made-boot")

    def fresh(self, system: str = "", lspci: str = "", sysfs: str = "", kernel: str = UBUNTU_KERNEL) -> None:
        """A bare machine with the GPU that lspci shows, or the one of the PCI id ``sysfs``."""
        purge = "dpkg-query -W -f '${Maintainer}\\t${Package}\\n' | sed -n 's/^" + MAINTAINER + "\\t//p'"
        self.host.exec(
            "sh",
            "-c",
            "systemctl disable --now drafthouse-nvidia-persistence.service >/dev/null 2>&1; "
            f'made=$({purge}); [ -z "$made" ] || dpkg --purge --force-all $made >/dev/null; '
            "rm -rf /opt/box /run/box /etc/apt/*/drafthouse-* /etc/apt/preferences.d/zz-* /dev/nvidia0 "
            "/etc/modprobe.d/drafthouse-* /etc/apt/keyrings/cuda-* "
            "/etc/systemd/system/drafthouse-* /etc/apt/sources.list.d/[!a]* /var/lib/apt/lists/*; "
            "cp /root/os-release /etc/os-release; systemctl daemon-reload",
        )
        if system:
            self.host.put("/etc/os-release", system)
        self.host.put("/opt/box/boot", BOOT, "0755")
        self.host.put("/opt/box/kernel", f"{kernel}\n")
        self.host.put("/opt/box/name", "NVIDIA made\n")
        self.host.put("/usr/local/bin/lspci", f"#!/bin/sh\ncat <<'EOF'\n{lspci or LSPCI_BMC}EOF\n", "0755")
        if sysfs:
            folder = f"{SYS}/bus/pci/devices/0000:01:00.0"
            for name, value in (("vendor", "0x10de"), ("device", f"0x{sysfs}"), ("class", "0x030000")):
                self.host.put(f"{folder}/{name}", f"{value}\n")
        self.host.exec("systemctl", "enable", "-q", "made-boot.service")
        self.boot()

    def boot(self) -> None:
        """Let the made kernel start, without the machine."""
        self.host.exec("sh", "-c", "rm -rf /run/box; /opt/box/boot")

    def install(self, *names: str, repository: str = "ubuntu") -> None:
        """Install packages as somebody would have done before us."""
        line = f"deb [trusted=yes] {self.shelf.url}/{repository} /"
        words = "apt-get -qq update && apt-get -qq install -y " + " ".join(names)
        words += " && rm /etc/apt/sources.list.d/before.list && apt-get -qq update"
        self.host.put("/etc/apt/sources.list.d/before.list", f"{line}\n")
        self.host.exec("sh", "-c", words)

    def state(self) -> str:
        """Everything about the machine that the role could change."""
        look = (
            "dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'; "
            "find /etc /lib/modprobe.d /usr/share/keyrings -xdev -type f -exec sha256sum {} + | sort -k2; "
            "ls -R /var/lib/apt/lists; systemctl is-enabled drafthouse-nvidia-persistence.service 2>&1 || true"
        )
        return self.host.exec("sh", "-c", look).stdout

    def installed(self) -> dict[str, tuple[str, bool]]:
        """The made packages that are installed: version, and whether they are held."""
        form = "${Maintainer}|${Package}|${Version}|${db:Status-Abbrev}\\n"
        rows = [line.split("|") for line in self.host.exec("dpkg-query", "-W", "-f", form).stdout.splitlines()]
        return {row[1]: (row[2], row[3].startswith("h")) for row in rows if row[0] == MAINTAINER and row[3][1] == "i"}

    def smi(self) -> str:
        """What nvidia-smi says about driver and GPU."""
        return self.host.run("nvidia-smi", "--query-gpu=name,driver_version", check=False).stdout


Play = Callable[..., Ended]


@pytest.fixture(scope="module")
def play(lab: Lab, shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Run the role on a box: ``repository`` names one of the shelf's, the rest are the role's variables."""
    role = tmp_path_factory.mktemp("play") / "driver.yml"
    role.write_text("- hosts: all\n  gather_facts: false\n  roles: [nvidia_driver]\n")

    def run(box: Box, *words: str, repository: str = "ubuntu", book: Path = role, **variables: Any) -> Ended:
        given = {"nvidia_driver_sys": SYS, "nvidia_driver_proc": PROC, **shelf.of(repository), **variables}
        return lab.play(str(book), lab.inventory([box.host]), *words, timeout=300, **given)

    return run


def _box(lab: Lab, shelf: Shelf, release: str) -> Iterator[Box]:
    host = lab.start("workstation", release=release)
    yield Box(host, shelf)
    host.remove()


@pytest.fixture(scope="module")
def bookworm(lab: Lab, shelf: Shelf) -> Iterator[Box]:
    yield from _box(lab, shelf, "bookworm")


@pytest.fixture(scope="module")
def trixie(lab: Lab, shelf: Shelf) -> Iterator[Box]:
    yield from _box(lab, shelf, "trixie")


def refused(ended: Ended, *words: str) -> None:
    """The run failed with found, needed and do, and with these words in the first."""
    assert ended.status != 0
    assert ended.lines("found") and ended.lines("needed") and ended.lines("do")
    found = "\n".join(ended.lines("found"))
    for word in words:
        assert word in found, found


DRIVER_580 = {
    "nvidia-open-580",
    "nvidia-driver-580-open",
    "libnvidia-compute-580",
    "nvidia-dkms-580-open",
    "nvidia-utils-580",
}


def test_rtx_pro_6000_on_ubuntu_24_04(bookworm: Box, play: Play, figure: Callable[[str], None]) -> None:
    """The whole way on a bare machine: check mode, installation, hold, persistence, second run, a newer version."""
    bookworm.fresh(UBUNTU24, sysfs="2bb1")
    bookworm.install("linux-image-generic", repository="archive")
    before = bookworm.state()
    checked = play(bookworm, "--check", "--diff")
    assert checked.status == 0 and "blacklist nouveau" in checked.output and "Signed-By" in checked.output
    assert bookworm.state() == before, "check mode has changed something"

    done = play(bookworm)
    assert done.status == 0, done.output
    there = bookworm.installed()
    assert {name: there[name] for name in DRIVER_580} == dict.fromkeys(DRIVER_580, ("580.95.05-1ubuntu1", True))
    assert {f"linux-headers-{UBUNTU_KERNEL}", "linux-headers-generic", "nvidia-driver-pinning-580"} <= set(there)
    assert "580.95.05" in bookworm.smi()
    seen = bookworm.host.backend()
    assert seen.service("drafthouse-nvidia-persistence.service").is_enabled
    assert seen.file("/run/box/persistent").exists
    assert seen.file("/etc/modprobe.d/drafthouse-nvidia.conf").contains("blacklist nouveau")
    assert seen.file("/etc/apt/keyrings/drafthouse-nvidia.asc").content == bookworm.shelf.signer.public
    assert seen.file("/etc/apt/sources.list.d/drafthouse-nvidia.sources").contains(bookworm.shelf.signer.fingerprint)

    # Neither CUDA's other packages nor its container toolkit push themselves before the distribution's.
    policy = bookworm.host.exec("apt-cache", "policy", "made-bystander", "nvidia-container-toolkit").stdout
    assert "Candidate: 1.0" in policy and "Candidate: 1.19.0-1" in policy

    after = bookworm.state()
    again = play(bookworm)
    assert (again.status, again.changed) == (0, 0), again.output
    assert bookworm.state() == after
    figure(f"driver: a bare host {done.seconds:.0f} s, the second run {again.seconds:.0f} s")

    # What unattended-upgrades and a careless upgrade would do: a newer version of the same branch comes out.
    source = "/etc/apt/sources.list.d/drafthouse-nvidia.sources"
    bookworm.host.exec("sed", "-i", "s,/ubuntu/,/later/,", source)
    bookworm.host.exec("sh", "-c", "apt-get -qq update && apt-get -qq -y dist-upgrade")
    assert bookworm.installed() == there
    # Without the hold it happens: the libraries change below the running module.
    bookworm.host.exec("sh", "-c", "apt-mark -qq unhold '*nvidia*' && apt-get -qq -y dist-upgrade")
    assert "version mismatch" in bookworm.smi()


def test_ours_is_taken_away_by_name(bookworm: Box, play: Play, tmp_path: Path) -> None:
    """Follows the installation above; a driver that was there before is left."""
    bookworm.fresh(UBUNTU24, sysfs="2bb1")
    bookworm.install("linux-image-generic", repository="archive")
    before = set(bookworm.installed())
    assert play(bookworm).status == 0
    role = {"ansible.builtin.include_role": {"name": "nvidia_driver", "tasks_from": "remove"}}
    book = tmp_path / "remove.yml"
    book.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": [role]}]))
    done = play(bookworm, book=book)
    assert done.status == 0, done.output
    # Headers stay: others may build modules with them.
    left = {name for name in set(bookworm.installed()) - before if not name.startswith("linux-headers-")}
    assert left == set()
    ours = bookworm.host.exec("find", "/etc", "-name", "*drafthouse*").stdout.split()
    assert ours == []
    again = play(bookworm, book=book)
    assert (again.status, again.changed) == (0, 0), again.output
    bookworm.install("nvidia-open-580", repository="ubuntu")
    refused(play(bookworm, book=book), "was installed before Drafthouse")


@pytest.mark.parametrize("release", ["bookworm", pytest.param("trixie", marks=pytest.mark.soak)])
def test_rtx_4090_on_debian(release: str, play: Play, request: pytest.FixtureRequest) -> None:
    """Debian 12 and 13 as they are; the repository has a newer branch under the same names."""
    box: Box = request.getfixturevalue(release)
    box.fresh(lspci=LSPCI_4090, kernel=DEBIAN_KERNEL)
    done = play(box, repository="debian")
    assert done.status == 0, done.output
    there = box.installed()
    for name in ("nvidia-open", "nvidia-driver-cuda", "nvidia-kernel-open-dkms"):
        assert there[name] == ("580.95.05-1", True)
    again = play(box, repository="debian")
    assert (again.status, again.changed) == (0, 0), again.output


def test_a_driver_that_is_good_enough_is_left_alone(bookworm: Box, play: Play) -> None:
    """Installed by somebody else, on a release that the role has no repository for: the author's Ubuntu 25.04."""
    bookworm.fresh(UBUNTU25, sysfs="2bb1")
    bookworm.install("nvidia-open")
    bookworm.boot()
    before = bookworm.state()
    done = play(bookworm)
    assert (done.status, done.changed) == (0, 0), done.output
    assert "610.43.02 works" in done.output
    assert bookworm.state() == before


@pytest.mark.soak
def test_another_release_is_offered_its_own_package(bookworm: Box, play: Play) -> None:
    bookworm.fresh(UBUNTU25, sysfs="2bb1")
    before = bookworm.state()
    ended = play(bookworm)
    refused(ended, "Ubuntu 25.04")
    assert "nvidia_driver_source=distribution" in ended.lines("do")[0]
    assert bookworm.state() == before
    bookworm.host.exec("sh", "-c", "apt-get -qq update && apt-get -qq install -y made-own-module")
    done = play(bookworm, nvidia_driver_source="distribution")
    assert done.status == 0, done.output
    assert bookworm.installed()["nvidia-driver-580-server-open"] == ("580.95.05-0ubuntu0.25.04.1", True)
    assert not bookworm.host.backend().file("/etc/apt/sources.list.d/drafthouse-nvidia.sources").exists


@pytest.mark.soak
def test_too_old(bookworm: Box, play: Play, figure: Callable[[str], None]) -> None:
    """In use by a process it stays; then it is replaced, and the machine comes back with the new one."""
    bookworm.fresh(UBUNTU24, lspci=LSPCI_4090)
    bookworm.install("nvidia-open-570")
    bookworm.boot()
    before = bookworm.state()
    # A real process with the device open; the made kernel's /proc shows it.
    holder = "exec 3>/dev/nvidia0; echo $$ >/run/holder; exec sleep 600"
    bookworm.host.exec("sh", "-c", f"setsid sh -c '{holder}' >/dev/null 2>&1 & sleep 0.5")
    bookworm.host.exec("sh", "-c", f"ln -s /proc/$(cat /run/holder) {PROC}/$(cat /run/holder)")
    refused(play(bookworm, nvidia_driver_reboot="when_needed"), "processes use the GPU: sleep (")
    assert bookworm.state() == before
    bookworm.host.exec("sh", "-c", f"kill $(cat /run/holder); rm {PROC}/$(cat /run/holder) /dev/nvidia0")

    # Without leave to reboot everything is installed, and the run says what is left.
    refused(play(bookworm), "the kernel still runs 570.211.01")
    assert bookworm.installed()["nvidia-utils-580"] == ("580.95.05-1ubuntu1", True)
    assert "nvidia-utils-570" not in bookworm.installed()
    assert "version mismatch" in bookworm.smi()
    refused(play(bookworm), "two versions")

    started = bookworm.host.exec("cut", "-d", " ", "-f22", "/proc/1/stat").stdout
    done = play(bookworm, nvidia_driver_reboot="when_needed")
    assert done.status == 0, done.output
    assert bookworm.host.exec("cut", "-d", " ", "-f22", "/proc/1/stat").stdout != started
    assert "580.95.05" in bookworm.smi()
    figure(f"driver: versions that were mixed are one after {done.seconds:.0f} s, a reboot among them")
    again = play(bookworm)
    assert (again.status, again.changed) == (0, 0), again.output


@pytest.mark.soak
def test_nouveau(bookworm: Box, play: Play) -> None:
    """It has the GPU: one run installs, keeps it away, reboots and comes back."""
    bookworm.fresh(UBUNTU24, lspci=LSPCI_4090)
    bookworm.host.put("/opt/box/nouveau", "")
    bookworm.boot()
    done = play(bookworm, nvidia_driver_reboot="when_needed")
    assert done.status == 0, done.output
    assert "580.95.05" in bookworm.smi()
    assert "nouveau" not in bookworm.host.run("cat", f"{PROC}/modules").stdout


def test_no_gpu(bookworm: Box, play: Play) -> None:
    bookworm.fresh(UBUNTU24)
    before = bookworm.state()
    refused(play(bookworm), "no NVIDIA GPU on the PCI bus")
    assert bookworm.state() == before


@pytest.mark.soak
def test_secure_boot(bookworm: Box, play: Play) -> None:
    """Refused before any package; with `warn` the packages are there and the run says what is left to do by hand."""
    bookworm.fresh(UBUNTU24, sysfs="2bb1")
    variable = f"{SYS}/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    bookworm.host.put(variable, b"\x06\0\0\0\x01")
    bookworm.host.put("/opt/box/refused", "")
    before = bookworm.state()
    refused(play(bookworm), "Secure Boot is on")
    assert bookworm.state() == before
    ended = play(bookworm, nvidia_driver_secure_boot="warn", nvidia_driver_reboot="when_needed")
    refused(ended, "does not answer")
    assert "mokutil --import" in ended.lines("do")[0]
    assert set(bookworm.installed()) >= DRIVER_580


@pytest.mark.soak
def test_branch_590_has_names_without_it(bookworm: Box, play: Play) -> None:
    """580 first, then 590 under its new names, although the repository has 610 under the same."""
    bookworm.fresh(UBUNTU24, sysfs="2bb1")
    assert play(bookworm).status == 0
    done = play(bookworm, nvidia_driver_branch=590, nvidia_driver_reboot="when_needed")
    assert done.status == 0, done.output
    there = bookworm.installed()
    for name in ("nvidia-open", "nvidia-driver-open", "libnvidia-compute", "nvidia-dkms-open", "nvidia-utils"):
        assert there[name] == ("590.48.01-1ubuntu1", True)
    assert "nvidia-driver-pinning-590" in there and "nvidia-driver-pinning-580" not in there
    assert "590.48.01" in bookworm.smi()
    again = play(bookworm, nvidia_driver_branch=590)
    assert (again.status, again.changed) == (0, 0), again.output


@pytest.mark.parametrize("release", ["bookworm", pytest.param("trixie", marks=pytest.mark.soak)])
def test_a_wrong_signature_is_refused(release: str, play: Play, shelf: Shelf, request: pytest.FixtureRequest) -> None:
    box: Box = request.getfixturevalue(release)
    name, wrong = ("ubuntu", "stranger") if release == "bookworm" else ("debian", "stranger")
    box.fresh(UBUNTU24 if release == "bookworm" else "", lspci=LSPCI_4090)
    before = box.state()
    refused(play(box, repository=wrong), "apt does not accept")
    refused(play(box, repository="changed"), "apt does not accept")
    other = {"nvidia_driver_repository_fingerprint": shelf.stranger.fingerprint}
    refused(play(box, repository=name, **other), "apt does not accept")
    assert box.state() == before

    # The reason for it: apt itself knew the repository while it was good, and is content with a warning.
    box.host.exec("sh", "-c", f"curl -s -o /etc/apt/keyrings/drafthouse-nvidia.asc {shelf.url}/ubuntu/key.pub")
    sources = f"Types: deb\nURIs: {shelf.url}/moving/\nSuites: /\nSigned-By: /etc/apt/keyrings/drafthouse-nvidia.asc\n"
    box.host.put("/etc/apt/sources.list.d/drafthouse-nvidia.sources", sources)
    moving = shelf.folder / "moving"
    moving.unlink(missing_ok=True)
    moving.symlink_to("ubuntu")
    box.host.exec("apt-get", "update")
    moving.unlink()
    moving.symlink_to("stranger")
    # A file that is not newer counts as unchanged, and both were made in the same second.
    for file in (shelf.folder / "stranger").glob("*Release*"):
        os.utime(file, (time.time() + 5, time.time() + 5))
    content = box.host.exec("apt-get", "update")
    assert content.returncode == 0 and "old" in content.stderr
    refused(play(box, repository="moving"), "apt does not accept")
    assert box.installed() == {}


@pytest.mark.soak
def test_a_repository_that_somebody_named_before_is_not_named_twice(bookworm: Box, play: Play, shelf: Shelf) -> None:
    """Two files with two keys for one address stop apt altogether: NVIDIA's own cuda-keyring package leaves one."""
    bookworm.fresh(UBUNTU24, sysfs="2bb1")
    bookworm.host.put("/etc/apt/keyrings/cuda-archive-keyring.asc", shelf.signer.public)
    line = f"deb [signed-by=/etc/apt/keyrings/cuda-archive-keyring.asc] {shelf.url}/ubuntu/ /\n"
    bookworm.host.put("/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list", line)
    done = play(bookworm)
    assert done.status == 0, done.output
    assert bookworm.host.exec("apt-get", "update").returncode == 0
    assert set(bookworm.installed()) >= DRIVER_580


@pytest.mark.soak
def test_a_run_that_was_killed_is_finished_by_the_next(bookworm: Box, play: Play) -> None:
    """After the packages and before their hold."""
    bookworm.fresh(UBUNTU24, sysfs="2bb1")
    assert play(bookworm).status == 0
    good = bookworm.state()
    bookworm.host.exec("sh", "-c", "apt-mark -qq unhold '*nvidia*'; systemctl -q disable drafthouse-nvidia-persistence")
    assert play(bookworm).status == 0
    assert bookworm.state() == good
