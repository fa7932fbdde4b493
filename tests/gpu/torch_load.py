"""The load of load.cu by way of PyTorch: `copy BYTES SECONDS` or `burn SECONDS`, a line of JSON each."""

from __future__ import annotations

import json
import sys
import time

import torch


def copied(size: int, seconds: float) -> dict[str, float]:
    """Copy inside the GPU's memory; a copy reads and writes each byte once."""
    source = torch.ones(size // 4, device="cuda")
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
    torch.cuda.synchronize()
    began, copies = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for _ in range(8):
            target.copy_(source)
        torch.cuda.synchronize()
        copies += 8
    took_s = time.monotonic() - began
    return {"gb_s": round(2 * source.numel() * 4 * copies / took_s / 1e9, 1), "seconds": round(took_s, 3)}


def burnt(seconds: float) -> dict[str, float]:
    """Multiply matrices until the time is up."""
    one = torch.randn(4096, 4096, device="cuda")
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for _ in range(8):
            one = torch.nn.functional.normalize(one @ one)
        torch.cuda.synchronize()
    return {"seconds": round(time.monotonic() - began, 3)}


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(copied(int(words[1]), float(words[2])) if words[0] == "copy" else burnt(float(words[1]))))
