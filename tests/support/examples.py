"""The examples in the help of the verbs, and the ones that are run as they stand there."""

from __future__ import annotations

import re
import shlex

from drafthouse.cli.main import module_of
from drafthouse.core.exit_codes import CANNOT_SAY, DONE, FAILED, WARNED

#: Run in a clone after `make demo`, when nothing serves any more (tests/fresh), with the statuses that are right then.
AFTER_THE_DEMO: dict[str, tuple[int, ...]] = {
    "drafthouse profiles": (DONE,),
    "drafthouse plan rtx6000-qwen-eagle3 --set speculation.num_speculative_tokens=5": (DONE,),
    "drafthouse render rtx6000-qwen-eagle3": (DONE,),
    "drafthouse export rtx6000-qwen-eagle3 --to kubernetes": (DONE,),
    "drafthouse fits gpt-oss-120b": (DONE,),
    "drafthouse drafts gpt-oss-120b": (DONE,),
    "drafthouse models --gpu 2x3090": (DONE,),
    "drafthouse new --target qwen3-32b --gpu h100 --print": (DONE,),
    "drafthouse completion zsh": (DONE,),
    "drafthouse where config": (DONE,),
    "drafthouse reports": (DONE,),
    "drafthouse reports --html": (DONE,),
    "drafthouse report --row": (DONE,),
    "drafthouse report --again cpu-smollm2-ngram": (DONE, WARNED, CANNOT_SAY),  # as quiet as the machine was
    "drafthouse compare cpu-smollm2-ngram cpu-smollm2-ngram --json": (DONE, CANNOT_SAY),
    "drafthouse prune --inventory local": (DONE,),
    "drafthouse tune cpu-smollm2-draft --list": (DONE,),
    "drafthouse upgrade rtx6000-qwen-eagle3 0.31.0 --list": (DONE,),
    "drafthouse weights cpu-smollm2-ngram": (DONE,),
    "drafthouse verify cpu-smollm2-ngram": (DONE,),
    "drafthouse logs --lines 200": (DONE,),
    "drafthouse history": (DONE,),
    "drafthouse bundle-report": (DONE,),
    "drafthouse doctor": (FAILED,),  # nothing serves
    "drafthouse rollback": (FAILED,),  # nothing served before
    "drafthouse stop": (DONE,),
    "drafthouse teardown": (DONE,),
}
#: Run elsewhere: by a test of the lane, with the values of its own server, box or account in place of the help's.
ELSEWHERE = {
    "judge": "tests/real_data/test_real_data.py",
    "evidence": "tests/unit/report/test_evidence.py",  # needs a report from a GPU
    "fleet": "tests/fleet/test_fleet.py",
    "bench": "tests/e2e/test_wheel.py",
    "init": "tests/unit/cli/test_init.py",
    "destroy": "tests/vast/test_whole_way.py",
    "model": "tests/weights/test_any_model.py",
    "rent": "tests/vast/cloud.py",
    "rented": "tests/vast/test_lost_box.py",
    "run": "tests/fresh/test_fresh.py",
    "stoppable": "tests/e2e/test_interrupt.py",
    "suite": "tests/unit/cli/test_suite.py",
    "translate": "tests/e2e/test_wheel.py",
    "tunnel": "tests/unit/operate/test_tunnel.py",
}


def examples(verb: str) -> list[list[str]]:
    """The words of each example in a verb's help."""
    text = (module_of(verb).options().epilog or "").replace("\\\n", " ")
    lines = re.findall(r"^ *(?:source <\()?drafthouse (.*?)(?:\)| {2,}\(.*| > .*| < .*)?$", text, re.MULTILINE)
    return [shlex.split(line) for line in lines]
