"""Inventories as people have them: what a command without a play reads of them, and what a play does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.cli.plan import main as plan
from drafthouse.profiles.inventory_variables import NEW, site_on
from drafthouse.profiles.workspace import DEFAULTS, ROOT, role_settings, site_from
from tests.support.refusals import refuses

PROFILE = "cpu-smollm2-ngram"
BIN = Path(sys.executable).parent
HOSTS = """
all:
  hosts:
    one: {drafthouse_port: "{{ base + 1 }}"}
    two: {drafthouse_gateway_name: "{{ only_a_fact_knows }}"}
  vars: {base: 9000}
"""


def _inventory(folder: Path, variables: str = "", hosts: str = HOSTS) -> str:
    (folder / "group_vars" / "all").mkdir(parents=True)
    (folder / "hosts.yml").write_text(hosts)
    (folder / "group_vars" / "all" / "site.yml").write_text(f"---\ndrafthouse_home: /srv/catalog\n{variables}")
    return str(folder)


def test_variables_of_a_host_and_of_its_groups_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = _inventory(tmp_path / "mine", "drafthouse_overrides: {title: mine}\n")
    site, overrides = site_on(inventory)
    assert (site["port"], site["home"], site["models_dir"]) == (9001, "/srv/catalog", "/srv/catalog/models")
    assert overrides == {"title": "mine"}
    assert "of 2 hosts this is one" in capsys.readouterr().err
    assert site_on(inventory, NEW)[0]["port"] == 8000
    assert plan([PROFILE, "--inventory", inventory, "--host", "one"]) == 0
    assert "--port 9001" in capsys.readouterr().out


def test_what_only_a_run_knows_is_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "drafthouse_currency: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3062\n"
    inventory = _inventory(tmp_path / "mine", secret)
    (tmp_path / "mine/group_vars/all/vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3062\n")
    site, _ = site_on(inventory, "two")
    told = capsys.readouterr().err
    assert "currency" not in site and "gateway_name" not in site
    assert all(word in told for word in ("drafthouse_currency", "drafthouse_gateway_name", "vault.yml is encrypted"))


@pytest.mark.parametrize(
    "content", ["[1, 2]\n", "just text\n", "3.5\n", '"open\n', "a: {b\n", "[" * 9000, f"a: {'[' * 9000}"]
)
def test_a_file_of_variables_that_holds_none_is_named(tmp_path: Path, content: str) -> None:
    inventory = _inventory(tmp_path / "mine")
    file = tmp_path / "mine/group_vars/all/more.yml"
    file.write_text(content)
    with refuses("inventory-unreadable", match="(?m)more.yml$") as caught:
        site_on(inventory)
    assert "AnsibleTagged" not in str(caught.value)


@pytest.mark.processes
def test_a_password_opens_what_is_encrypted(tmp_path: Path) -> None:
    inventory = _inventory(tmp_path / "mine")
    password, file = tmp_path / "password", tmp_path / "mine/group_vars/all/vault.yml"
    password.write_text("horse")
    file.write_text("drafthouse_port: 9100\n")
    words = ["ansible-vault", "encrypt", str(file), "--vault-password-file", str(password)]
    subprocess.run([BIN / words[0], *words[1:]], check=True, capture_output=True)
    script = f"from drafthouse.profiles.inventory_variables import *; print(site_on({inventory!r}, 'two')[0]['port'])"
    environment = {**os.environ, "ANSIBLE_VAULT_PASSWORD_FILE": str(password), "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-c", script]
    assert subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout == "9100\n"


def test_hosts_on_the_command_line_have_the_defaults() -> None:
    site, overrides = site_on("box.example,")
    assert site == {**DEFAULTS, "models_dir": f"{DEFAULTS['home']}/models"} and overrides == {}


def test_no_such_inventory_and_no_such_host(tmp_path: Path) -> None:
    with refuses("no-such-inventory"):
        site_on(str(tmp_path / "none"))
    with refuses("no-such-host") as error:
        site_on(_inventory(tmp_path / "mine"), "onne")
    assert error.value.problems[0].do == "write 'one'"


@pytest.mark.parametrize(
    ("name", "near"),
    [("drafthouse_allow_cidr", "drafthouse_allow_cidrs"), ("drafthouse_firewal_state", "drafthouse_firewall_state")],
)
def test_a_misspelt_name_is_refused_with_the_nearest(name: str, near: str) -> None:
    with refuses("unknown-key") as error:
        site_from({name: "x"})
    assert error.value.problems[0].do == f"write '{near}'"


def test_no_setting_that_a_playbook_computes_is_an_inventorys() -> None:
    found = role_settings()
    assert not {"firewall_allow_cidrs", "gateway_state", "engine_hashes"} & found.keys()
    assert {"firewall_state", "weights_hub_endpoint", "container_engine_settings", "report_folder"} <= found.keys()


def _play(*words: str, cwd: Path = ROOT, config: bool = True) -> str:
    own = {} if config else {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "ANSIBLE_HOME": str(cwd)}
    done = subprocess.run(
        [BIN / "ansible-playbook", *words],
        cwd=cwd,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.processes
def test_old_names_are_read_and_those_of_others_are_not(tmp_path: Path) -> None:
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    variables = f"""
profile: {PROFILE}
drafthouse_models_dir: {tmp_path}/models
firewall_state: started
container_engine: true
weights_max_workers: 3
drafthouse_weights_stall_s: 7
"""
    hosts = f"all: {{hosts: {{box: {local}}}}}"
    inventory = _inventory(tmp_path / "mine", variables.replace("/srv/catalog", str(tmp_path)), hosts)
    book = tmp_path / "show.yml"
    show = "{{ firewall_state }} {{ container_engine }} {{ weights_max_workers }} {{ weights_stall_s }}"
    tasks = [{"drafthouse.core.resolve": None}, {"ansible.builtin.debug": {"msg": show}}]
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    said = _play(str(book), "-i", inventory)
    assert "present False 3 7" in said, said
    assert all(f"{name} of the inventory is" in said for name in ("profile", "container_engine"))
    assert "drafthouse_weights_max_workers" in said and "firewall_state is not read" in said


@pytest.mark.processes
def test_another_playbook_imports_ours_for_some_hosts(tmp_path: Path) -> None:
    """From a folder of its own, without this clone's ansible.cfg, beside hosts that are none of ours."""
    book = tmp_path / "mine.yml"
    book.write_text(
        f"- import_playbook: {ROOT}/site.yml\n  vars: {{drafthouse_hosts: gpu, profile: {PROFILE}}}\n  tags: [mine]\n"
    )
    hosts = tmp_path / "hosts.yml"
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    hosts.write_text(f"all: {{hosts: {{web: {{}}}}, children: {{gpu: {{hosts: {{box: {local}}}}}}}}}\n")
    said = _play(str(book), "-i", str(hosts), "--tags", "preflight", cwd=tmp_path, config=False)
    assert "failed=0" in said and "web" not in said, said


@pytest.mark.processes
def test_the_first_box_decides_whether_the_others_follow(tmp_path: Path) -> None:
    local = f"{{ansible_connection: local, ansible_python_interpreter: {sys.executable}}}"
    bad = local.replace("{", "{drafthouse_profile: no-such, ")
    hosts = f"all: {{hosts: {{first: {bad}, second: {local}}}}}"
    inventory = _inventory(tmp_path / "two", f"drafthouse_profile: {PROFILE}\ndrafthouse_home: {tmp_path}/h\n", hosts)
    words = ("site.yml", "-i", inventory, "--tags", "preflight")
    together, after_it = _play(*words), _play(*words, "-e", "drafthouse_first=1")
    assert "second" in together and "no-such" in after_it
    assert "second" not in after_it, after_it


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="a firewall is root's")
def test_a_part_of_the_host_phase_runs_alone(tmp_path: Path) -> None:
    """Nothing is downloaded for who asks for a part, or for the host without its weights."""
    managed = ("-e", "drafthouse_manage_host=true", "-e", f"drafthouse_home={tmp_path}", "-e", f"profile={PROFILE}")
    for tags, shown, hidden in (("firewall", "firewall :", "weights :"), ("engine", "engine :", "firewall :")):
        said = _play("site.yml", "-i", "inventory/local", "--check", "--tags", tags, *managed)
        assert "failed=0" in said and shown in said and hidden not in said, said
