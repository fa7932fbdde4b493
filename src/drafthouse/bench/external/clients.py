"""The same requests once more, sent by another benchmark client: a second opinion on our own numbers.

The other tool runs in an environment of its own (it is never installed by us), sends the prompts of one group
at the same concurrency, lengths and temperature, and its result file is read into our names. Ours is measured
before it and again after it: what an engine remembers of the first round (prefix cache, lookup tables) helps
whoever comes second, and the pair of ours shows how much.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ...bench.client import Endpoint
from ...bench.groups import Group, StepOptions, plan_groups
from ...bench.results import assemble
from ...bench.step import run_step
from ...core.errors import NotHere, Problem, did_you_mean, one_problem
from ...core.format import DASH, count, number, whole
from ...core.table import aligned
from .formats import COUNTS, HERE, NUMBERS, TOOLS, Call, Tool, Work, number_in

if TYPE_CHECKING:
    from drafthouse.bench.client import Ask
    from drafthouse.bench.result_types import ArmResult, Numbers
    from drafthouse.prompts.suite_types import Kind, Suite

#: How long a tool may take beside the time of its requests (imports, its own start), in seconds.
START_S = 180.0
_TAIL_LINES = 12
_ENDED_S = 10.0

OURS, AGAIN = "ours", "ours again"
_TITLES = {
    "output_throughput": "output tok/s",
    "request_throughput": "requests/s",
    "median_ttft_ms": "TTFT ms, median",
    "p99_ttft_ms": "TTFT ms, p99",
    "median_tpot_ms": "TPOT ms, median",
    "p99_tpot_ms": "TPOT ms, p99",
    "median_e2el_ms": "E2E ms, median",
    "completed": "completed",
    "failed": "failed",
    "total_output_tokens": "output tokens",
}

Side = dict[str, float | str | None]
"""Numbers under the names of `NUMBERS` and `COUNTS`, and ``raw_file``: where the tool's own result is kept."""


class SecondOpinion(TypedDict):
    """Ours, theirs and ours again, by group; ``left_out`` says why the tool cannot send a prompt, by its id."""

    client: str
    program: str
    differs: list[str]
    left_out: dict[str, str]
    groups: dict[str, dict[str, Side]]


def tool_named(name: str) -> Tool:
    """Return the tool of that name. Raises DrafthouseError."""
    if name not in TOOLS:
        raise one_problem(
            "invalid-option",
            f"no client '{name}'",
            f"one of: {', '.join(TOOLS)}",
            did_you_mean(name, TOOLS),
            "--client",
        )
    return TOOLS[name]


def find_program(tool: Tool, home: Path | None = None) -> Path:
    """Return the tool's program: in the environment ``home``, else on PATH.

    Raises DrafthouseError with what to install.
    """
    found = shutil.which(tool.program, path=str(home / "bin")) if home else shutil.which(tool.program)
    if found:
        return Path(found).absolute()  # not resolved: an environment is told by where its program stands
    where = f"{home}/bin" if home else "PATH"
    raise NotHere(
        Problem(
            "program-missing",
            f"no program '{tool.program}' in {where}",
            f"{tool.name} in its own environment",
            f"python3 -m venv ~/{tool.name} && ~/{tool.name}/bin/pip install '{tool.package}', then add "
            f"--client-home ~/{tool.name}",
            f"--client {tool.name}",
        )
    )


def works_of(groups: Sequence[Group], options: StepOptions) -> list[Work]:
    """Return what is to be sent: the requests of each group, those of all rounds one after the other."""
    asks: dict[str, list[Ask]] = {}
    for group in groups:
        asks.setdefault(group.key, []).extend(group.asks)
    return [Work(key, found, options.concurrency, options.timeout_s) for key, found in asks.items()]


def sendable(tool: Tool, suites: Sequence[Suite], options: StepOptions) -> tuple[list[Suite], dict[str, str]]:
    """Return the suites with the prompts that the tool can send, and why it cannot send the others, by id.

    Raises DrafthouseError when it can send none of them.
    """
    why: dict[str, str] = {}
    for group in plan_groups(suites, options):
        for ask in group.asks:
            reason = tool.cannot_send(ask)
            if reason:
                why[ask.prompt_id] = reason
    kept: list[Suite] = []
    for suite in suites:
        kinds: dict[str, Kind] = {}
        for kind, entry in suite["kinds"].items():
            repeat = entry.get("repeat", 1)
            prompts = [one for one in entry["prompts"] if (f"{one['id']}#1" if repeat > 1 else one["id"]) not in why]
            if prompts and (not options.kinds or kind in options.kinds):
                kinds[kind] = {**entry, "prompts": prompts}
        if kinds:
            kept.append({**suite, "kinds": kinds})
    if not kept:
        first = next(iter(why.items()))
        raise one_problem(
            "no-prompts",
            f"{tool.name} cannot send any of the prompts ({first[0]}: {first[1]})",
            "prompts of one user message",
            "choose another suite or kind, or --client aiperf, which sends any request",
            f"--client {tool.name}",
        )
    return kept, why


def run_tool(
    tool: Tool, program: Path, work: Work, endpoint: Endpoint, tokenizer: str | None = None, keep: Path | None = None
) -> Side:
    """Send one group with the tool; return its numbers (`NUMBERS` and `COUNTS`), and its own file under `raw_file`.

    Everything it reads and writes lies in a folder of its own that is removed afterwards: a configuration may hold the
    key. ``keep`` is a folder for its result file. Raises DrafthouseError with its last lines when it fails.
    """
    call = tool.call(work, endpoint, tokenizer)
    with tempfile.TemporaryDirectory(prefix="drafthouse-client-") as name:  # 0700
        folder = Path(name)
        for file, text in call.files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            # Prompts are nobody's template.
            written = text if file.endswith(".jsonl") else text.replace(HERE, name)
            (folder / file).write_text(written, "utf-8")
            (folder / file).chmod(0o600)
        # The requests of a whole group can take as long as one of them may, times the turns.
        turns = -(-len(work.asks) // work.concurrency)
        words = [word.replace(HERE, name) for word in call.words]
        _run([str(program), *words], folder, call, START_S + turns * work.timeout_s, endpoint, tool.name)
        try:
            found = json.loads(next(folder.glob(call.result)).read_text("utf-8"))
            if not isinstance(found, dict):
                raise ValueError("no JSON object")
        except (OSError, StopIteration, ValueError) as error:
            file = call.result.rpartition("/")[2]
            raise one_problem(
                "client-failed",
                f"{tool.name} exited with 0 but wrote no readable {file} ({str(error) or 'no file'})",
                "its result as JSON",
                f"check that its version is the one in docs/second-opinion.md ({tool.package})",
                f"--client {tool.name}",
            ) from error
        numbers: Side = {**tool.read(found)}
        if not numbers.get("completed"):
            raise one_problem(
                "client-failed",
                f"{tool.name} completed none of {count(len(work.asks), 'request')}",
                "a server that answers it as it answers Drafthouse",
                "try one prompt, and check the engine's log",
                f"--client {tool.name}",
            )
        if keep is not None:
            kept = keep / f"{tool.name}-{work.name.replace('/', '-')}.json"
            kept.write_text(endpoint.without_key(json.dumps(found)), "utf-8")
            numbers["raw_file"] = str(kept)
    return numbers


def _run(words: list[str], folder: Path, call: Call, limit_s: float, endpoint: Endpoint, name: str) -> None:
    """Run a command in ``folder``; whatever it started ends with it. Raises DrafthouseError."""
    with (folder / "output").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **call.environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a group of its own: AIPerf is a dozen processes
        )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(process)
        if code == 0:
            return
        output.seek(0)
        tail = "\n".join(line.rstrip() for line in output.read().splitlines()[-_TAIL_LINES:])
    raise one_problem(
        "client-failed",
        f"{name} {'did not end in time' if code is None else f'ended with status {code}'}; its last lines:\n"
        + endpoint.without_key(tail),
        "the tool's result",
        "read these lines; docs/second-opinion.md names the version that is supported",
        f"--client {name}",
    )


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for what in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, what)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDED_S)
            return


def second_opinion(
    tool: Tool,
    endpoint: Endpoint,
    suites: Sequence[Suite],
    options: StepOptions,
    first: ArmResult | None = None,
    *,
    home: Path | None = None,
    tokenizer: str | None = None,
    keep: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> SecondOpinion:
    """Measure with ours, with the tool, with ours again; return all of it by group.

    ``first`` is a result of ours of these very suites and options, just measured; it is used where the tool can send
    every prompt of it, otherwise ours is measured anew without those that it cannot. Raises DrafthouseError.
    """
    program = find_program(tool, home)
    kept, left_out = sendable(tool, suites, options)
    works = works_of(plan_groups(kept, options), options)
    if tokenizer and Path(tokenizer).is_dir():
        tokenizer = str(Path(tokenizer).absolute())  # the tool runs in a folder of its own
    before = first
    if before is None or left_out:
        tell(f"ours, {count(sum(len(work.asks) for work in works), 'request')}")
        before = assemble([run_step([endpoint], kept, options)], endpoint.arm)
    theirs: dict[str, Side] = {}
    for work in works:
        tell(f"{tool.name}: {work.name}, {count(len(work.asks), 'request')}")
        theirs[work.name] = run_tool(tool, program, work, endpoint, tokenizer, keep)
    tell("ours again")
    after = assemble([run_step([endpoint], kept, replace(options, warmups=0))], endpoint.arm)
    return {
        "client": tool.name,
        "program": program.name,
        "differs": list(tool.differs),
        "left_out": left_out,
        "groups": {
            work.name: {
                OURS: numbers_of(before["groups"][work.name]),
                tool.name: theirs[work.name],
                AGAIN: numbers_of(after["groups"][work.name]),
            }
            for work in works
        },
    }


def numbers_of(result: Numbers) -> Side:
    """Return the numbers of a result or of one of its groups that are compared."""
    told: Mapping[str, object] = result
    return {name: number_in(told.get(name)) for name in (*NUMBERS, *COUNTS)}


def comparison_lines(opinion: SecondOpinion) -> list[str]:
    """Return a second opinion as lines for a terminal: a table for each group, the difference beside it."""
    name = str(opinion["client"])
    lines = [f"Second opinion: {name} and our client, the same requests at the same concurrency", ""]
    for group, sides in opinion["groups"].items():
        table = [[str(group), OURS, name, AGAIN, "difference"]]
        for key, title in _TITLES.items():
            values = [number_in(sides[side].get(key)) for side in (OURS, name, AGAIN)]
            if any(value is not None for value in values):
                shown = _shown if key in NUMBERS else whole
                table.append([title, *map(shown, values), _difference(values) if key in NUMBERS else ""])
        lines += [*aligned(table), ""]
    lines.append(
        "difference: theirs against the mean of our two runs. Our second run follows theirs: prompts that are still"
    )
    lines.append("in the engine's cache speed up theirs and our second run, but not our first.")
    if opinion["left_out"]:
        prompts = opinion["left_out"]
        lines.append(
            f"Left out because {name} cannot send them: {', '.join(prompts)} ({next(iter(prompts.values()))})."
        )
    return [*lines, *opinion["differs"]]


def _shown(value: float | None) -> str:
    return number(value, 4) if value is not None else DASH


def _difference(values: Sequence[float | None]) -> str:
    one, other, again = values
    own = [value for value in (one, again) if value is not None]
    if other is None or not own or not sum(own):
        return DASH
    return f"{100 * (other * len(own) / sum(own) - 1):+.1f} %"
