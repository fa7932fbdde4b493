"""Weights that come from another box, and a bundle with the engine's image on a box that is asked to fetch nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.hosts.hosts import Host, Lab

PROFILE = "cpu-smollm2-ngram"
WEIGHTS = "/workspace/models"
KEYS = "/root/.ssh/authorized_keys"


@pytest.fixture
def pair(lab: Lab) -> Iterator[tuple[Host, Host]]:
    """Two rented boxes in one network."""
    first, second = lab.start("rental"), lab.start("rental")
    yield first, second
    first.remove()
    second.remove()


def host_vars(inventory: Path, host: Host, **variables: object) -> None:
    folder = inventory / "host_vars"
    folder.mkdir(exist_ok=True)
    (folder / f"{host.name}.yml").write_text(yaml.safe_dump(variables), "utf-8")


def sums(host: Host) -> list[str]:
    """Return the hashes of the weights on a box."""
    words = f"find {WEIGHTS} -name '*.gguf' -type f -exec sha256sum {{}} +"
    return sorted(host.run("sh", "-c", words).stdout.splitlines())


@pytest.mark.soak
def test_one_box_fetches_and_the_other_copies(lab: Lab, pair: tuple[Host, Host], figure: Callable[[str], None]) -> None:
    first, second = pair
    inventory = lab.inventory([first, second], like="vastai", group_vars={"profile": PROFILE})
    # Nothing but the other box may give it weights.
    host_vars(inventory, second, drafthouse_weights_from_box=first.name, offline=True)
    keys = first.run("cat", KEYS).stdout

    done = lab.play("site.yml --tags weights", inventory)
    assert done.status == 0, done.output[-3000:]
    assert sums(first)
    assert sums(second) == sums(first)
    # The way is closed again.
    assert first.run("cat", KEYS).stdout == keys
    assert second.run("find", "/workspace", "-name", "*hand-on*").stdout == ""
    figure(f"weights: one box fetched, the other copied them from it: {done.seconds:.0f} s for both")

    again = lab.play("site.yml --tags weights", inventory)
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]

    # A file that is lost, or was changed, comes again; a key that was left over is of no use.
    (file,) = (line.split()[1] for line in sums(second) if "Q4" in line)  # the others are made of it
    second.run("sh", "-c", f"printf x | dd of={file} bs=1 seek=1000 conv=notrunc status=none")
    assert lab.play("site.yml --tags weights", inventory).status == 0
    assert sums(second) == sums(first)
    assert first.run("cat", KEYS).stdout == keys
