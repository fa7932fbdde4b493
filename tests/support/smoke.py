"""The rendered smoke.sh, run as a person would against a server of the tests."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def smoke(
    resolved: Mapping[str, Any], folder: Path, base_url: str, key: str | None
) -> subprocess.CompletedProcess[str]:
    """Run the profile's smoke.sh against ``base_url`` with the key in the environment."""
    (script,) = [file["content"] for file in resolved["extras"] if file["path"] == "smoke.sh"]
    path = folder / "smoke.sh"
    path.write_text(script, "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "DRAFTHOUSE_API_KEY"}
    environment |= {"BASE_URL": base_url, "MAX_TOKENS": "16"} | ({"DRAFTHOUSE_API_KEY": key} if key else {})
    return subprocess.run(
        ["bash", str(path)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def answer_of(done: subprocess.CompletedProcess[str]) -> str:
    """What the model said; AssertionError shows what the script printed instead."""
    assert done.returncode == 0, done.stderr
    text: str = json.loads(done.stdout)["choices"][0]["message"]["content"]
    return text
