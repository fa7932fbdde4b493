"""A fleet's front as its inventory says it, and the options of a sweep through one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import Worker
from drafthouse.cli import bench_front, fleet_report
from drafthouse.cli.bench import options, what_is_sent
from drafthouse.cli.fleet_measure import front_url
from drafthouse.core.errors import DrafthouseError
from tests.support.ladders import known_ladder
from tests.support.refusals import refuses

FLEET: dict[str, Any] = {"drafthouse_fleet": {"port": 8444}}


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        ({"one": {"ansible_host": "192.0.2.1", **FLEET}, "two": FLEET}, "https://192.0.2.1:8444"),
        ({"one": {"drafthouse_fleet": {"front": "two"}}, "two": {"ansible_host": "2001:db8::1"}}, "https://[2001:db8::1]:8444"),
        ({"one": {"drafthouse_fleet": {"name": "llm.example.org", "port": 443}}}, "https://llm.example.org:443"),
        ({"one": {"drafthouse_fleet": {}}}, "https://one:8444"),
    ],
)  # fmt: skip
def test_where_the_front_is(hosts: Any, url: str) -> None:
    assert front_url(hosts, "fleet") == url


def test_an_inventory_without_a_fleet() -> None:
    with refuses("no-host"):
        front_url({"one": {}}, "fleet")


def test_engines_behind_a_front() -> None:
    urls = ["a=http://10.0.0.1:8000/metrics", "http://10.0.0.2:8000/metrics?x=1"]
    assert bench_front.workers_from(urls, "k") == (
        Worker("a", "http://10.0.0.1:8000/metrics", "k"),
        Worker("10.0.0.2:8000", "http://10.0.0.2:8000/metrics?x=1", "k"),
    )
    # One plain address is that of the server's own counters, as it always was.
    assert bench_front.workers_from(["http://10.0.0.1:8000/metrics"], None) == ()
    assert len(bench_front.workers_from(["a=http://10.0.0.1:8000/metrics"], None)) == 1


@pytest.mark.parametrize(
    "urls", [["10.0.0.1:8000"], ["a=ftp://10.0.0.1/"], ["a=http://x/1", "a=http://x/2"], ["http://x/1", "http://x/2"]]
)
def test_engines_that_cannot_be_told(urls: list[str]) -> None:
    with refuses("invalid-option"):
        bench_front.workers_from(urls, None)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--arm", "baseline"], "conflicting-options"),
        (["--processes", "2"], "conflicting-options"),
        (["--from", "box"], "conflicting-options"),
        (["--ladder", "1", "--round", "2"], "invalid-option"),
        (["--ladder", "1", "--ca", "/no/such/file"], "certificate-unreadable"),
        (["--ladder", "1", "--metrics-key-file", "/no/such/file"], "api-key-unreadable"),
    ],
)
def test_options_that_do_not_fit(words: list[str], code: str) -> None:
    with refuses(code):
        what_is_sent(options().parse_args(["--base-url", "http://127.0.0.1:1", "--model", "m", *words]))


def test_a_file_that_holds_no_certificate(tmp_path: Path) -> None:
    file = tmp_path / "not.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    with refuses("certificate-unreadable"):
        bench_front.read_ca(file)


def test_a_load_box_is_no_option_of_ssh_s() -> None:
    given = options().parse_args(["--base-url", "http://x", "--model", "m", "--from=-oProxyCommand=x"])
    with refuses("invalid-option"):
        bench_front.clients_from(given)


def test_the_report_of_a_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "fleet.json", tmp_path / "fleet.md"
    ladder = known_ladder({4: 1.8, 16: 1.5, 64: 0.8}, notes=["a | b"])
    own = {
        "name": "box|1", "requests": 1234, "output_tokens": 9, "output_throughput": 0.9, "draft_tokens": 10,
        "accepted_tokens": 5, "failed": None, "said": None,
    }  # fmt: skip
    for step in ladder["steps"]:
        step.update({"replicas": [own], "completed": 20, "failed": 1, "duration_s": 10.0})
    file.write_text(json.dumps(ladder))
    assert fleet_report.main([str(file), "--boxes", "4", "--markdown", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "with 4 boxes speculation pays up to about" in shown
    assert "baseline: 120 requests in 6 good steps, 6 failed at the client" in shown
    table = page.read_text()
    assert "|  | box/1 |" in table
    assert "| accepted | 50.0 % |" in table
    assert "| failed | - |" in table


def test_a_file_that_is_no_ladder(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": "other"}')
    with pytest.raises(DrafthouseError):
        fleet_report.main([str(tmp_path / "x.json")])
