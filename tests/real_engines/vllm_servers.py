"""A real vLLM on this machine's CPU, for the tests that need one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.engines import READY_S, ask, engine_home
from tests.support.ports import free_port


@contextmanager
def vllm_server(
    target: Path, speculation: Mapping[str, Any] | None = None, context: int = 512, *more: str
) -> Iterator[str]:
    """Run `vllm serve`, with ``more`` flags, ready inside the block."""
    port = free_port()
    words = [
        str(engine_home("vllm") / "bin" / "vllm"), "serve", str(target), "--served-model-name", "smol",
        "--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(context), "--max-num-seqs", "8",
        "--enforce-eager", "--dtype", "bfloat16",
        *(["--speculative-config", json.dumps(speculation)] if speculation else []),
        *more,
    ]  # fmt: skip
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    with tempfile.TemporaryFile("w+") as log:
        # A session of its own: the engine has processes below it that must end with it.
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            deadline = time.monotonic() + 3 * READY_S
            while ask(f"http://127.0.0.1:{port}/health")[0] != 200:
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise AssertionError(f"vLLM did not get ready: {log.read()[-3000:]}")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(READY_S)
