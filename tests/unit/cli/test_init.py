"""`drafthouse init`: an inventory that Ansible reads as it was meant, and nothing of the user's overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafthouse.cli.main import main
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.yaml_documents import yaml_of
from drafthouse.profiles.inventory_variables import site_on


def _host(folder: Path) -> dict[str, object]:
    return yaml_of((folder / "hosts.yml").read_text("utf-8"))["all"]["hosts"]  # type: ignore[no-any-return]


def test_an_inventory_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my box"
    assert main(["init", str(folder)]) == 0
    assert f"--inventory '{folder}'" in capsys.readouterr().out
    assert _host(folder)["localhost"]["ansible_connection"] == "local"  # type: ignore[index]
    site, overrides = site_on(str(folder))
    assert (site["home"], site["runtime"], site["manage_host"]) == ("~/drafthouse", "process", False)
    assert overrides == {}
    assert "drafthouse_profile: cpu-smollm2-ngram\n" in (folder / "group_vars" / "all.yml").read_text("utf-8")
    lines = [line for path in folder.rglob("*.yml") for line in path.read_text("utf-8").splitlines()]
    assert len(lines) <= 40


@pytest.mark.parametrize(
    ("typed", "host", "port", "user"),
    [
        ("root@203.0.113.7:40022", "203.0.113.7", 40022, "root"),
        ("box.example.org", "box.example.org", None, "root"),
        ("me@[2001:db8::7]:22", "2001:db8::7", 22, "me"),
    ],
)
def test_an_inventory_of_a_box_by_ssh(typed: str, host: str, port: int | None, user: str, tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "box"), "--ssh", typed]) == 0
    box = _host(tmp_path / "box")["box"]
    assert isinstance(box, dict)
    assert (box["ansible_host"], box.get("ansible_port"), box["ansible_user"]) == (host, port, user)


@pytest.mark.parametrize(
    "typed", ["", "a b", "a@", "@b", "host:0", "host:65536", "host\n  evil: 1", "{{ x }}", "a:b:c"]
)
def test_what_is_no_address_is_refused(typed: str, tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match="USER@HOST"):
        main(["init", str(tmp_path / "box"), "--ssh", typed])
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match="rtx6000-qwen-eagle3"):
        main(["init", str(tmp_path / "box"), "--profile", "rtx6000-qwen-eagle"])
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    file = tmp_path / "box" / "hosts.yml"
    file.parent.mkdir()
    file.write_text("mine")
    for folder in (file.parent, file):
        with pytest.raises(DrafthouseError, match="choose another name"):
            main(["init", str(folder)])
    assert file.read_text() == "mine"
