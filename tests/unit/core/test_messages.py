"""Messages that people report, each with the cause that the threads about it found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drafthouse.core.messages import MESSAGES, known_message, last_known_message


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        # NVIDIA/open-gpu-kernel-modules#1159 and #1151, with the bus address of slot 31
        ("NVRM: Xid (PCI:0000:01:00): 8, pid=48694, name=python3, channel 0x00000008", "stopped responding"),
        ("NVRM: Xid (PCI:0000:31:00): 79, pid=1234, GPU has fallen off the bus.", "fallen off the PCI bus"),
        ("NVRM: Xid (PCI:0000:13:00): 119, pid=1, Timeout after 6s of waiting for RPC response", "stopped responding"),
        ("NVRM: Xid (PCI:0000:01:00): 13, pid=4242, name=VLLM::EngineCor, Graphics Exception", "outside its memory"),
        ("NVRM: Xid (PCI:0000:01:00): 48, pid=1, DBE (double bit error) ECC Error", "memory has errors"),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x72:1589)", "cannot start the GPU"),
        # NVIDIA/open-gpu-kernel-modules#862
        ("No devices were found", "no GPU answers"),
        ("nvidia-container-cli: initialization error: nvml error: driver/library version mismatch", "newer than"),
        ("Failed to initialize NVML: Unknown Error", "daemon-reload"),
        # Docker 29 without the toolkit; an older one
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", "no NVIDIA runtime"),
        ('could not select device driver "" with capabilities: [[gpu]]', "no NVIDIA runtime"),
        # NVIDIA/nvidia-container-toolkit#1199
        ("load library failed: libnvidia-ml.so.1: cannot open shared object file", "driver's libraries"),
        # NVIDIA/nvidia-container-toolkit#1967
        ("cuInit(0) failed: CUDA_ERROR_UNKNOWN", "nvidia-uvm"),
        ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "nvidia-uvm"),
        ("Error 802: system not yet initialized", "fabric"),
        ("Error 804: forward compatibility was attempted on non supported HW", "compatibility library"),
        ("The NVIDIA driver on your system is too old (found version 12040)", "older than the engine's CUDA"),
        ("CUDA error: no kernel image is available for execution on the device", "generation"),
    ],
)
def test_a_message_has_its_cause(text: str, cause: str) -> None:
    found = known_message(f"some line\n{text}\nanother")
    assert found is not None
    assert cause in found.cause


REPORTED = json.loads(Path(__file__).with_name("messages.json").read_text("utf-8"))["messages"]


@pytest.mark.parametrize(("source", "text", "cause"), REPORTED, ids=[row[0] for row in REPORTED])
def test_a_reported_message_has_the_cause_of_its_thread_or_none(source: str, text: str, cause: str | None) -> None:
    lines = ["Traceback (most recent call last):", text, "    raise e"]
    explained = last_known_message(lines)
    if cause is None:
        assert explained is None
        return
    assert explained is not None
    assert (explained[0], cause in explained[1].cause) == (text, True)


@pytest.mark.parametrize(
    "text",
    [
        *("", "AssertionError", "HTTP 802 bytes", "INFO Xid of nothing: 79", "expert 79"),
        # a client of our own gateway; an advice beside a figure; a bus address; a flag in a listing
        '127.0.0.1:5000 - "POST /v1/chat/completions HTTP/1.1" 429 Too Many Requests',
        "Available KV cache memory: 18.78 GiB",
        "NVRM: loading module for PCI:0000:79:00",
        "non-default args: {'gpu_memory_utilization': 0.98, 'mem_fraction_static': 0.8}",
        "nvidia-nvswitch1: Xid of nothing (PCI:0000:aa:00.0): 31",
        "No space left on device",
    ],
)
def test_what_is_no_message_of_the_table_has_none(text: str) -> None:
    assert known_message(text) is None


def test_the_last_line_with_a_message_is_the_one_that_is_told() -> None:
    lines = ["Xid (PCI:0000:01:00): 13, pid=1", "Xid (PCI:0000:01:00): 79, pid=1", "NVRM: loading 580.95"]
    found = last_known_message(lines)
    assert found is not None
    assert (found[0], "fallen off" in found[1].cause) == (lines[1], True)
    assert last_known_message(lines[2:]) is None


def test_an_nvswitch_is_no_gpu() -> None:
    """Its SXid numbers are not the GPUs' Xid numbers."""
    found = known_message("nvidia-nvswitch1: SXid (PCI:0000:31:00.0): 79, Severity 1")
    assert found is not None
    assert "NVSwitch" in found.cause


def test_every_row_has_a_cause_and_something_to_do() -> None:
    assert [one.pattern for one in MESSAGES if not one.cause or not one.do] == []
