"""The client of vast.ai's API against a server that behaves as it: what it does, and every fault on the way."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast import client as vast_client
from drafthouse.cloud.vast.client import VastClient, key_of_environment
from drafthouse.cloud.vast.errors import KeyRefused, OfferGone, OutcomeUnknown, OutOfReach, QuotaSpent, VastError
from drafthouse.cloud.vast.http import checked_url
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.retry import Patience
from tests.fakes.vast_server import ALWAYS, KEY, SECOND_KEY, Fault, Life, Running, vast_server
from tests.support.ports import free_port

pytestmark = pytest.mark.processes

BODY = {"image": "vllm/vllm-openai:v0.32.0", "label": "drafthouse-a-1", "disk": 120, "runtype": "ssh_direc ssh_proxy"}
H100 = {"gpu_name": {"eq": "H100 NVL"}, "verified": {"eq": True}, "order": [["dph_total", "asc"]]}
OFFER = 8200002
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOnE someone@somewhere"
TRIES = 3


def client_of(vast: Running, **options: Any) -> VastClient:
    options.setdefault("patience", Patience(tries=TRIES))
    options.setdefault("sleep", lambda seconds: None)
    return VastClient(options.pop("key", vast.key), vast.url, **options)


# --- what it does -----------------------------------------------------------------------------------------


def test_the_way_of_a_rental() -> None:
    with vast_server() as vast:
        client = client_of(vast)
        found: Any = client.offers({**H100, "reliability": {"gte": 0.98}, "cpu_arch": {"eq": "amd64"}, "limit": 5})
        assert found and len(found) <= 5
        assert [offer["dph_total"] for offer in found] == sorted(offer["dph_total"] for offer in found)
        number = client.create(OFFER, {**BODY, "env": {"-p 8000:8000": "1"}})
        assert client.instance(number)["actual_status"] == "loading"  # type: ignore[index]
        shown: Any = client.instance(number)
        assert shown is not None
        assert (shown["actual_status"], shown["label"]) == ("running", "drafthouse-a-1")
        assert set(shown["ports"]) == {"22/tcp", "8000/tcp"}
        assert {number, *vast.others} == {row["id"] for row in client.instances()}
        client.stop(number)
        assert client.instance(number)["actual_status"] == "stopped"  # type: ignore[index]
        assert number in vast.billing()
        assert client.destroy(number) is True
        assert client.instance(number) is None
        assert client.destroy(number) is False
        assert vast.billing() == vast.others
    assert {one.key for one in vast.asked if one.route != "log_text"} == {KEY}


def test_prices_are_for_the_disk_that_is_asked_for() -> None:
    with vast_server() as vast:
        found: list[Any] = [client_of(vast).offers({**H100, "allocated_storage": gb})[0] for gb in (10, 1000)]
    small, large = found
    assert large["dph_total"] - small["dph_total"] == pytest.approx(0.15 * 990 / 720)


@pytest.mark.parametrize("page", [1, 2, 25])
def test_all_pages_of_the_instances(page: int) -> None:
    with vast_server(page=page) as vast:
        numbers = [client_of(vast).create(8200001 + place, BODY) for place in range(3)]
        rows = client_of(vast).instances()
        assert [row["id"] for row in rows] == sorted([*numbers, *vast.others])
        assert vast.count("instances") == -(-6 // page)


def test_an_account_sees_and_ends_its_own_only() -> None:
    with vast_server() as vast:
        other = client_of(vast, key=SECOND_KEY)
        assert other.instances() == []
        assert other.destroy(vast.others[0]) is False
        assert vast.billing() == vast.others


def test_ssh_keys() -> None:
    with vast_server() as vast:
        client = client_of(vast)
        assert client.ssh_keys() == []
        client.add_ssh_key(PUBLIC + "\n")
        client.add_ssh_key(PUBLIC.replace("someone@somewhere", "the same key"))
        assert [row["key"] for row in client.ssh_keys()] == [PUBLIC]
        assert vast.count("add_key") == 1
        client.attach_ssh_key(vast.others[0], PUBLIC)
        assert vast.market.instances[vast.others[0]].body["attached_keys"] == [PUBLIC]


def test_a_key_that_was_added_and_whose_answer_was_lost() -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("add_key", cut=True, after=True))
        client = client_of(vast)
        client.add_ssh_key(PUBLIC)
        assert len(client.ssh_keys()) == 1


# --- trouble that passes, and that does not ---------------------------------------------------------------

READS: dict[str, Callable[[VastClient], object]] = {
    "search": lambda client: client.offers(H100),
    "instances": lambda client: client.instances(),
    "instance": lambda client: client.instance(31000001),
    "destroy": lambda client: client.destroy(31000001),
    "state": lambda client: client.stop(31000001),
    "keys": lambda client: client.ssh_keys(),
}
PASSING: dict[str, dict[str, Any]] = {
    "429": {"status": 429},
    "500": {"status": 500},
    "502 from a proxy": {"status": 502, "body": b"<html>bad gateway</html>"},
    "503 after the effect": {"status": 503, "after": True},
    "cut": {"cut": True},
    "cut after the effect": {"cut": True, "after": True},
    "reset": {"reset": True},
    "half an answer": {"half": True, "after": True},
}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("route", READS)
def test_a_read_is_tried_again(route: str, fault: str) -> None:
    with vast_server() as vast:
        vast.faults.append(Fault(route, times=TRIES - 1, **PASSING[fault]))
        said: list[str] = []
        READS[route](client_of(vast, tell=said.append))
        assert vast.count(route) == TRIES
    assert len(said) == TRIES - 1
    assert KEY not in " ".join(said)


def test_a_destroy_whose_answer_was_lost_has_ended_it() -> None:
    with vast_server() as vast:
        number = client_of(vast).create(OFFER, BODY)
        vast.faults.append(Fault("destroy", cut=True, after=True))
        assert client_of(vast).destroy(number) is False
        assert number not in vast.billing()


@pytest.mark.parametrize("fault", PASSING)
def test_trouble_that_does_not_pass(fault: str) -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("instances", times=ALWAYS, **PASSING[fault]))
        with pytest.raises(VastError) as raised:
            client_of(vast).instances()
        assert vast.count("instances") == TRIES
    assert "found: " in str(raised.value) and KEY not in str(raised.value)


def test_retry_after_is_honoured_up_to_a_minute() -> None:
    with vast_server() as vast:
        slept: list[float] = []
        vast.faults.append(Fault("search", status=429, headers={"Retry-After": "7"}))
        client_of(vast, sleep=slept.append).offers(H100)
        assert slept == [7.0]
        vast.faults.append(Fault("search", status=429, headers={"Retry-After": "3600"}))
        with pytest.raises(VastError, match="HTTP 429"):
            client_of(vast, sleep=slept.append).offers(H100)
        assert (slept, vast.count("search")) == ([7.0], 3)


def test_a_spent_quota_is_not_tried_again() -> None:
    with vast_server() as vast:
        headers = {"X-RateLimit-Reset": "1795478400"}
        vast.faults.append(Fault("search", ALWAYS, status=429, error="search_quota_exceeded", headers=headers))
        with pytest.raises(QuotaSpent, match=r"come back after 2026-11-24 00:00 UTC"):
            client_of(vast).offers(H100)
        assert vast.count("search") == 1
        del vast.faults[:]
        vast.faults.append(Fault("search", status=429, error="search_quota_exceeded"))
        with pytest.raises(QuotaSpent, match=r"come back after \d{4}-\d\d-\d\d 00:00 UTC"):
            client_of(vast).offers(H100)


# --- a create ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500, "after": True},
        {"status": 504, "after": True, "body": b"<html>"},
        {"status": 408, "after": True},
        {"cut": True, "after": True},
        {"reset": True, "after": True},
        {"half": True, "after": True},
        {"after": True, "body": b""},
        {"after": True, "body": b"<html>"},
        {"after": True, "body": b'{"success": true}'},
        {"after": True, "body": b'{"success": true, "new_contract": null}'},
        {"after": True, "body": b'{"success": true, "new_contract": true}'},
        {"after": True, "body": b'{"success": false, "msg": "try later"}'},
        {"after": True, "body": b"[1]"},
        {"status": 500},
        {"cut": True},
    ],
    ids=str,
)
def test_a_create_is_sent_once_and_its_outcome_is_unknown(fault: dict[str, Any]) -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("create", **fault))
        with pytest.raises(OutcomeUnknown, match="it may be rented\n"):
            client_of(vast).create(OFFER, BODY)
        assert vast.count("create") == 1
        assert len(vast.ours) == bool(fault.get("after"))
        # How the caller finds it.
        assert [row["id"] for row in client_of(vast).instances() if row["label"] == BODY["label"]] == list(vast.ours)


def test_a_create_that_comes_too_late_is_unknown_and_may_appear_later() -> None:
    with vast_server(lives=[Life(unlisted_for=2)]) as vast:
        vast.faults.append(Fault("create", slow_s=0.6))
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
            client_of(vast, timeout_s=0.2).create(OFFER, BODY)
        end = time.monotonic() + 120
        while not vast.ours:
            assert time.monotonic() < end
            time.sleep(0.02)
        (number,) = vast.ours
        seen = [number in {row["id"] for row in client_of(vast).instances()} for _ in range(3)]
    assert seen == [False, False, True]


@pytest.mark.parametrize(
    "fault",
    [
        {"gone": True},
        {"status": 404, "error": "no_such_ask"},
        {"status": 400, "said": "error 404/3603: no_such_ask  Instance type 1 is not available."},
    ],
    ids=str,
)
def test_an_offer_that_is_gone(fault: dict[str, Any]) -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("create", **fault))
        with pytest.raises(OfferGone, match=f"offer {OFFER} is gone"):
            client_of(vast).create(OFFER, BODY)
        assert (vast.count("create"), vast.ours) == (1, {})


def test_an_offer_can_be_rented_once() -> None:
    with vast_server() as vast:
        client_of(vast).create(OFFER, BODY)
        with pytest.raises(OfferGone):
            client_of(vast).create(OFFER, BODY)


def test_a_create_waits_for_a_rate_limit_alone() -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("create", times=2, status=429))
        client_of(vast).create(OFFER, BODY)
        assert (vast.count("create"), len(vast.ours)) == (3, 1)


@pytest.mark.parametrize(
    ("body", "options", "says"),
    [
        (BODY, {"credit": False}, "add credit at"),
        ({**BODY, "disk": 5000}, {}, "disk 5000.0 is more"),
        ({**BODY, "onstart": "x" * 4049}, {}, "longer than 4048"),
        ({"label": "x"}, {}, "image is required"),
    ],
)
def test_a_create_that_is_refused_rents_nothing(body: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with vast_server(**options) as vast:
        with pytest.raises(VastError, match=says) as raised:
            client_of(vast).create(OFFER, body)
        assert not isinstance(raised.value, OutcomeUnknown)
        assert (vast.count("create"), vast.ours) == (1, {})


def test_the_price_of_a_rental_can_differ_from_the_one_shown() -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("create", price=9.0))
        number = client_of(vast).create(OFFER, BODY)
        shown: Any = client_of(vast).instance(number)
    assert shown["dph_total"] > 9.0


# --- answers that cannot be trusted -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("search", b"<html>login</html>"),
        ("search", b'{"offers": null}'),
        ("search", b'{"offers": [{"gpu_name": "H100"}]}'),
        ("search", b"[]"),
        ("instances", b"{}"),
        ("instances", b'{"instances": [7]}'),
        ("instances", b'{"instances": [{"id": "7"}]}'),
        ("instances", b'{"instances": {"id": 7}}'),
        ("instance", b"{}"),
        ("instance", b'{"instances": 7}'),
        ("instance", b'{"instances": {"label": "x"}}'),
        ("keys", b'{"success": true}'),
        ("keys", b"[7]"),
        ("state", b"{}"),
        ("state", b'{"success": false, "msg": "locked"}'),
        ("destroy", b"{}"),
        ("destroy", b'"gone"'),
        ("destroy", b""),
    ],
)
def test_an_answer_that_is_malformed(route: str, body: bytes) -> None:
    with vast_server() as vast:
        vast.faults.append(Fault(route, body=body, times=ALWAYS))
        with pytest.raises(VastError, match="found: "):
            READS[route](client_of(vast))


def test_a_list_that_does_not_end() -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("instances", ALWAYS, body=b'{"instances": [{"id": 7}], "next_token": "t1"}'))
        with pytest.raises(VastError, match="an endless list"):
            client_of(vast).instances()
        assert vast.count("instances") == 2


@pytest.mark.parametrize("body", [b"<html>404</html>", b'{"success": false, "error": "no_such_instance"}'])
def test_a_404_is_no_proof_that_a_machine_has_ended(body: bytes) -> None:
    with vast_server() as vast:
        number = client_of(vast).create(OFFER, BODY)
        vast.faults.append(Fault("destroy", ALWAYS, status=404, body=body))
        with pytest.raises(VastError, match=f"'no instance {number}'"):
            client_of(vast).destroy(number)
        vast.faults.append(Fault("instance", ALWAYS, status=404, body=b"<html>404</html>"))
        with pytest.raises(VastError, match="HTTP 404"):
            client_of(vast).instance(number)


# --- the key, and where it goes ---------------------------------------------------------------------------


@pytest.mark.parametrize("route", READS)
def test_a_wrong_key(route: str) -> None:
    with vast_server() as vast:
        with pytest.raises(KeyRefused, match=r"HTTP 401: Invalid user key(.|\n)*manage-keys") as raised:
            READS[route](client_of(vast, key="vk-wrong"))
        assert vast.count(route) == 1
    assert "vk-wrong" not in str(raised.value)


def test_a_containers_key_may_end_its_own_instance_and_no_other() -> None:
    with vast_server() as vast:
        numbers = [client_of(vast).create(8200001 + place, BODY) for place in range(2)]
        own = client_of(vast, key=vast.market.instances[numbers[0]].container_key)
        for what in (own.instances, lambda: own.create(8200003, BODY), lambda: own.destroy(numbers[1])):
            with pytest.raises(KeyRefused):
                what()
        vast.market.container_may.discard("destroy")
        with pytest.raises(KeyRefused, match="does not have permission"):
            own.destroy(numbers[0])
        own.stop(numbers[0])
        vast.market.container_may.add("destroy")
        assert own.destroy(numbers[0])
        assert vast.billing() == [*vast.others, numbers[1]]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_key_does_not_follow_a_redirect(status: int) -> None:
    with vast_server() as vast, vast_server() as elsewhere:
        headers = {"Location": f"{elsewhere.url}/api/v1/instances/"}
        vast.faults.append(Fault("instances", ALWAYS, status=status, headers=headers))
        with pytest.raises(VastError, match=f"HTTP {status}(.|\n)*VAST_URL"):
            client_of(vast).instances()
        assert elsewhere.asked == []


def test_the_key_is_in_no_text() -> None:
    with vast_server() as vast:
        vast.faults.append(Fault("search", status=400, said=f"no such key {KEY}"))
        client = client_of(vast)
        with pytest.raises(VastError, match=r"no such key \(key\)") as raised:
            client.offers({})
    texts = [repr(client), str(client), str(raised.value), repr(raised.value), str(raised.value.result)]
    assert not [text for text in texts if KEY in text]


def test_no_network() -> None:
    slept: list[float] = []
    client = VastClient(KEY, f"http://127.0.0.1:{free_port()}", patience=Patience(tries=3), sleep=slept.append)
    with pytest.raises(OutOfReach, match=r"ConnectionRefusedError(.|\n)*3 times in a row(.|\n)*check the network"):
        client.instances()
    assert len(slept) == 2
    # Nothing can have been rented.
    with pytest.raises(OutOfReach):
        client.create(OFFER, BODY)


def test_a_name_that_does_not_resolve() -> None:
    client = VastClient(KEY, "https://no-such-host.invalid", patience=Patience(tries=1))
    with pytest.raises(OutOfReach, match=r"no answer from https://no-such-host\.invalid"):
        client.create(OFFER, BODY)


def test_a_listener_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = VastClient(KEY, address, patience=Patience(tries=1), timeout_s=0.1)
        with pytest.raises(OutOfReach, match="no answer in time"):
            client.instances()
        with pytest.raises(OutcomeUnknown):
            client.create(OFFER, BODY)


def test_a_listener_that_speaks_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        client = VastClient(KEY, f"http://127.0.0.1:{listener.getsockname()[1]}", patience=Patience(tries=1))
        with pytest.raises(OutOfReach, match=r"BadStatusLine|RemoteDisconnected"):
            client.instances()


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://console.vast.ai/", True),
        ("http://127.0.0.1:4000", True),
        ("http://localhost:4000", True),
        ("http://[::1]:4000", True),
        ("http://10.1.2.3:4000", True),
        ("http://console.vast.ai", False),
        ("http://203.0.113.9", True),  # a test network counts as private, and nobody has it
        ("http://8.8.8.8", False),
        ("ftp://console.vast.ai", False),
        ("file:///etc/passwd", False),
        ("console.vast.ai", False),
        ("https://user:secret@console.vast.ai", False),
        ("https://console.vast.ai/?a=b", False),
        ("https://[", False),
        ("https://host:port", False),
        ("", False),
    ],
)
def test_addresses_that_a_key_may_be_sent_to(url: str, good: bool) -> None:
    if good:
        assert checked_url(url) == url.rstrip("/")
        return
    with pytest.raises(DrafthouseError, match="VAST_URL") as raised:
        VastClient(KEY, url)
    assert "secret" not in str(raised.value)


def test_the_proxy_of_the_environment_is_not_used_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with vast_server() as vast:
        assert len(client_of(vast).instances()) == 3


# --- where the key comes from -----------------------------------------------------------------------------


def test_the_key_of_the_environment(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match=r"no vast.ai API key(.|\n)*VAST_API_KEY(.|\n)*manage-keys"):
        key_of_environment({}, tmp_path)
    (tmp_path / ".vast_api_key").write_text("old-file\n")
    assert key_of_environment({}, tmp_path) == "old-file"
    for folder, environ in ((".config", {}), ("elsewhere", {"XDG_CONFIG_HOME": str(tmp_path / "elsewhere")})):
        file = tmp_path / folder / "vastai" / "vast_api_key"
        file.parent.mkdir(parents=True)
        file.write_text(f"key-in-{folder}\n")
        assert key_of_environment(environ, tmp_path) == f"key-in-{folder}"
    assert key_of_environment({"VAST_API_KEY": " from-environment "}, tmp_path) == "from-environment"
    assert key_of_environment({"VAST_API_KEY": ""}, tmp_path) == "key-in-.config"


def test_a_named_variable_is_asked_alone(tmp_path: Path) -> None:
    (tmp_path / ".vast_api_key").write_text("of-the-other-account")
    assert key_of_environment({"WORK": "w", "VAST_API_KEY": "v"}, tmp_path, "WORK") == "w"
    with pytest.raises(DrafthouseError, match="needed: WORK\n"):
        key_of_environment({"VAST_API_KEY": "v"}, tmp_path, "WORK")


@pytest.mark.parametrize("key", ["two words", "a\nX-Header: b", "schlüssel", "\x00"])
def test_a_key_that_is_none(key: str, tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match="VAST_API_KEY") as raised:
        key_of_environment({"VAST_API_KEY": f"-{key}-"}, tmp_path)
    assert key not in str(raised.value)
    with pytest.raises(DrafthouseError):
        VastClient(key)


def test_no_file_of_the_client_prints_or_logs() -> None:
    for file in ("client.py", "http.py"):
        text = (Path(vast_client.__file__).parent / file).read_text("utf-8")
        assert not re.search(r"\bprint\(|\blogging\b|set_debuglevel|debuglevel", text)


@pytest.mark.parametrize("route", READS)
def test_a_revoked_key_is_said_whatever_the_status(route: str) -> None:
    """As in a public report: 404 with `auth_error`."""
    answer = b'{"success": false, "error": "auth_error", "msg": "Invalid user key"}'
    with vast_server() as vast:
        vast.faults.append(Fault("*", status=404, body=answer))
        with pytest.raises(KeyRefused, match="Invalid user key"):
            READS[route](client_of(vast))
