"""The shortest experiment whose verdict is valid beside other work: what most tests of a whole run measure.

An answer needs three pieces for a time per token, and a client that has to wait for a processor reads in one piece
whatever has come meanwhile. The small model ends "repeat this line" after nine tokens, two of its steps with a lookup.
These stories go on: 64 tokens, a second of the small weights on one core. They quote their prompt, so a lookup drafts.
Six prompts are the fewest that have a 95 % interval.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: For `overrides.experiment`: two rounds of this suite alone, a user's own.
TALES: dict[str, Any] = {
    "suites": [str(Path(__file__).with_suffix(".jsonl"))],
    "kinds": ["mine"],
    "once": [],
    "budget": 0,
}
#: For `overrides` of a run beside a lane's other tests: the small weights, and one thread each. Engines that spin for
#: each other would be all that is measured.
BESIDE_OTHERS: dict[str, Any] = {"target": "smollm2-135m-q4", "serve": {"threads": 1}, "experiment": TALES}
#: The same for a run of which nobody reads the verdict: answers half as long.
SHORTEST: dict[str, Any] = {**BESIDE_OTHERS, "experiment": {**TALES, "max_output_tokens": 32}}
