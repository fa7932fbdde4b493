"""The plan as text: what a resolved profile needs, would fetch, may reach, and the commands it runs."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING

from ..core.format import shown_level, shown_time
from ..core.pins import image_of
from ..core.plain_text import printable_lines
from ..core.shell import shell_words
from ..core.table import table
from ..profiles.budget import limit_words
from ..profiles.ever_run import ever_run
from ..profiles.experiment_plan import kinds_left_out, suites_of_round
from ..profiles.known_issues import issue_lines
from ..profiles.memory_fit import GB
from ..profiles.render import yaml_block
from ..prompts.load_levels import longest_s

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import DerivedImage, ResolvedEngine, ResolvedProfile, WeightItem
    from drafthouse.prompts.load_levels import PlannedLadder

#: What a method drafts with that names no model for it.
_NO_DRAFT = {"lookup": "none: tokens are looked up", "builtin": "the head inside the target"}


def plan_text(resolved: ResolvedProfile) -> str:
    """Return the whole plan; sizes in GB (powers of ten), for one device."""
    parts = [_head(resolved), _memory(resolved), _downloads(resolved), _speed(resolved)]
    parts += [_commands(resolved, arm) for arm in resolved["arms"]]
    return printable_lines("\n\n".join(parts))


def _head(resolved: ResolvedProfile) -> str:
    engine, method, site = resolved["engine"], resolved["method"], resolved["site"]
    lines = [
        f"{resolved['profile']}: {resolved['title']}",
        f"hardware   {resolved['hardware']['devices']} x {resolved['hardware']['name']}",
        f"engine     {engine['name']} {engine['version']}{_plugin(engine)}, runtime {engine['runtime']}"
        f" ({engine['version_reason']})",
        *_image(resolved),
        *_derived(resolved["derived_image"]),
        f"target     {resolved['target']['name']}",
        f"draft      {resolved['draft']['name'] if resolved['draft'] else _NO_DRAFT[method['kind']]}"
        f" ({method['name']}, K={method['num_speculative_tokens']})",
        f"served at  http://{site['host']}:{site['port']}/v1 as {resolved['target']['served_name']}",
        f"verified   {ever_run(resolved['verified'])}",
    ]
    lines += _rounds(resolved)
    if ladder := resolved["experiment"].get("ladder"):
        lines += _load(resolved, ladder)
    lines += [f"note       {warning}" for warning in resolved["warnings"]]
    for issue in resolved["known_issues"]:
        first, *more = issue_lines(issue)
        lines += [f"known      {first}", *(f"           {line}" for line in more)]
    return "\n".join(lines)


def _rounds(resolved: ResolvedProfile) -> list[str]:
    """Return the rounds to begin with and what may be spent on more of them: starts, answers, time and money.

    The time is that of answers which take all of their tokens at the decode limit; how long a start takes is known
    only on the box, and told there before a further round is bought.
    """
    experiment, site = resolved["experiment"], resolved["site"]
    limit = float(resolved["expectation"]["decode_limit_tok_s"]) * experiment["concurrency"]
    rounds = experiment["rounds"]
    asked = [_asked(resolved, number) for number in range(1, rounds + 1)]
    answers, tokens = (len(resolved["arms"]) * sum(column) for column in zip(*asked, strict=True))
    starts = sum(len(step["arms"]) for step in experiment["steps"])
    first_s = tokens / limit
    lines = [
        f"rounds     {rounds} at first: {starts} starts (each {shown_time(resolved['engine']['ready_timeout_s'])}"
        f" at most), {answers:,} answers, about {shown_time(first_s)} at the decode limit"
    ]
    bought = experiment["most_rounds"] > rounds
    if bought:
        lines.append(
            f"           more while the evidence is unclear, {experiment['most_rounds']} in all at most:"
            f" {limit_words(experiment['budget'])} (experiment.budget)"
        )
    else:
        lines.append(f"           and no more than these {rounds} (experiment.budget)")
    if (price := site.get("price_per_hour")) is not None:
        money = partial(_money, price=float(price), currency=str(site.get("currency") or ""))
        more = f"; further rounds {money(experiment['budget']['most_s'])} at most" if bought else ""
        lines.append(f"           at {money(3600)} an hour: about {money(first_s)} plus the starts{more}")
    return lines


def _asked(resolved: ResolvedProfile, number: int) -> tuple[int, int]:
    """Return how many answers an arm gives in a round, and their tokens at most."""
    experiment = resolved["experiment"]
    answers = tokens = 0
    left_out = kinds_left_out(experiment, number)
    for suite in suites_of_round(experiment, number):
        for name, kind in resolved["suites"][suite]["kinds"].items():
            if name in left_out:
                continue
            times = len(kind.get("temperatures") or experiment["temperatures"])
            count = len(kind["prompts"]) * kind.get("repeat", 1) * times
            answers += count
            tokens += count * kind["output_tokens"]
    return answers, tokens


def _money(seconds: float, price: float, currency: str) -> str:
    return f"{price * seconds / 3600:.2f} {currency}".rstrip()


def _load(resolved: ResolvedProfile, ladder: PlannedLadder) -> list[str]:
    """Return the load ladder with the time it takes at most, and the kinds that have too few prompts for a verdict."""
    from ..analysis.crossover import prompts_needed  # noqa: PLC0415 (it brings numpy; most plans have no ladder)

    experiment = resolved["experiment"]
    kinds = {
        name: len(kind["prompts"]) * kind.get("repeat", 1)
        for suite in experiment["suites"]
        if ladder["kinds"] or suite not in experiment["once"]
        for name, kind in resolved["suites"][suite]["kinds"].items()
        if (name in ladder["kinds"] if ladder["kinds"] else name not in experiment["once"])
    }
    levels = ", ".join(shown_level(level) for level in ladder["levels"])
    most = shown_time(longest_s(ladder, len(kinds), len(resolved["arms"])))
    needed = prompts_needed(len(ladder["levels"]))
    return [
        f"load       {levels} {ladder['unit']}: {len(kinds)} {'kind' if len(kinds) == 1 else 'kinds'} of work,"
        f" {ladder['rounds']} rounds, each step at most {ladder['seconds']:g} s, {most} at most in all",
        *(
            f"note       '{name}' has {number} prompts: a verdict over {len(ladder['levels'])} levels needs {needed}"
            for name, number in kinds.items()
            if number < needed
        ),
    ]


def _plugin(engine: ResolvedEngine) -> str:
    return f" with its plugin {engine['plugin']}" if engine["plugin"] else ""


def _image(resolved: ResolvedProfile) -> list[str]:
    """Return the line about the image that a registry is asked for, and whether its tag is pinned."""
    name = image_of(resolved)
    if not name:
        return []
    pinned = resolved.get("image_digest")
    words = f"pinned: {pinned}" if pinned else "a tag; the first pull pins its digest (pins.json)"
    return [f"image      {name}" + ("" if "@sha256:" in name else f", {words}")]


def _derived(image: DerivedImage | None) -> list[str]:
    """Return the line about an image that is built on the box."""
    if image is None:
        return []
    return [f"image      {image['name']}: built on the box from {image['base']} with {', '.join(image['packages'])}"]


def _memory(resolved: ResolvedProfile) -> str:
    rows = []
    for arm, data in resolved["arms"].items():
        fit = data["fit"]
        rows.append(
            [
                arm,
                _gb(fit["memory"] * fit["utilization"]),
                _gb(fit["weights"]),
                _gb(fit["draft"]),
                _gb(fit["overhead"]),
                _gb(fit["kv_needed"]),
                _gb(fit["left"]),
                f"{fit['longest_context']:,}",
            ]
        )
    fit = resolved["arms"]["baseline"]["fit"]
    head = [
        "memory, GB/device",
        "usable",
        "weights",
        "draft",
        "overhead",
        "KV cache",
        "left",
        "longest context",
    ]
    words = "sequence" if fit["sequences"] == 1 else "sequences"
    return (
        table(head, rows, width=20)
        + f"\nusable = {fit['utilization']:.0%} of {_gb(fit['memory'])} GB;"
        + f" KV cache for a context of {fit['context']:,} tokens, {fit['sequences']} {words};"
        + " overhead is assumed, not measured"
    )


def _downloads(resolved: ResolvedProfile) -> str:
    rows = []
    total = 0
    for item in resolved["weights"]:
        fetched = item["bytes"] if item["source"] in ("hub", "package") else 0
        total += fetched
        rows.append([item["name"], _where_from(item), _gb(fetched), _gb(item["bytes"])])
    rows.append(["all", "", _gb(total), _gb(sum(item["bytes"] for item in resolved["weights"]))])
    folders = f"\nbelow {resolved['site']['models_dir']}"
    return table(["weights", "from", "download GB", "disk GB"], rows, width=58) + folders


def _where_from(item: WeightItem) -> str:
    source, details = item["source"], item["details"]
    if source == "hub":
        return f"Hugging Face: {details['repo']} at {(item.get('pinned') or details['revision'])[:12]}"
    if source == "package":
        return f"PyPI: {details['name']} {details['version']}"
    if source == "derived":
        return f"made here from {details['from']} ({details['recipe']})"
    return "is there already"


def _speed(resolved: ResolvedProfile) -> str:
    expected = resolved["expectation"]
    lines = [
        f"decode limit  {expected['decode_limit_tok_s']:,.1f} tok/s for one user without speculation:"
        f" {_gb(expected['bandwidth_bytes_s'])} GB/s memory bandwidth"
        f" / {_gb(expected['bytes_per_token'])} GB read per token"
    ]
    if expected["speedup"] is None:
        lines.append("speed-up      no estimate: the profile assumes no acceptance rate")
    else:
        a, k, c = expected["acceptance"], expected["num_speculative_tokens"], expected["draft_cost"]
        lines.append(
            f"speed-up      {expected['speedup']:.2f}x to expect: (1-a^(K+1)) / ((1-a)(1+K*c))"
            f" with a={a:g}, K={k}, c={c:.3f} (Leviathan et al. 2023)"
        )
        lines.append(f"              a: acceptance rate per draft token, from {expected['acceptance_source']}")
        lines.append("              c: time of a draft step over a target step, here the ratio of their bytes;")
        lines.append("              valid while memory bandwidth is the limit: at high load, or on a CPU, expect less")
    return "\n".join(lines)


def _commands(resolved: ResolvedProfile, arm: str) -> str:
    data = resolved["arms"][arm]
    words = [f"{name}={shell_words(value)}" for name, value in data["environment"].items()]
    head = " ".join([*words, shell_words(data["command"])])
    flags = list(data["flags"])
    if config := data["config"]:
        flags.append([config["flag"], config["file"]])
    text = f"{arm} arm\n" + " \\\n".join(f"  {line}" for line in [head, *(f"  {shell_words(flag)}" for flag in flags)])
    if config:
        text += f"\n\n  {config['file']}\n" + textwrap.indent(yaml_block(config["data"]), "    ")
    return text


def _gb(size: float) -> str:
    return f"{size / GB:,.2f}" if abs(size) < 10 * GB else f"{size / GB:,.1f}"
