"""Format the plan of a resolved profile as text: memory, downloads, expected speed, and the engines' commands."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ..analysis.speedup import FEWEST_PROMPTS
from ..bench.sweep.plan import plan_of
from ..core.format import count, shown_level, shown_time
from ..core.pins import image_of
from ..core.plain_text import printable_lines
from ..core.shell import shell_words
from ..core.table import WHOLE, table
from ..profiles.budget import limit_words
from ..profiles.ever_run import ever_run
from ..profiles.expected_speed import expected_words, mean_acceptance_length
from ..profiles.known_issues import issue_lines
from ..profiles.memory_fit import GB
from ..profiles.render import yaml_block
from ..prompts.contexts import base_kind
from ..prompts.load_levels import longest_s
from .more_rounds import money
from .verdict_cost import GAIN, SMALL_GAIN, minutes_of, round_load

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import DerivedImage, ResolvedEngine, ResolvedProfile, WeightItem
    from drafthouse.prompts.load_levels import PlannedLadder

#: The line "draft" of methods without a draft model, by kind of method.
_NO_DRAFT = {"lookup": "none: tokens are looked up", "builtin": "the head inside the target"}


# Columns at which the values of a section begin; continuation lines are indented to them.
_HEAD = 11  # the section of `_head`
_SPEED = 14  # the section of `_speed`


def plan_text(resolved: ResolvedProfile, columns: int = WHOLE) -> str:
    """The whole plan, wrapped at ``columns``, except the commands, which users copy. Sizes are GB (10^9) per device."""
    parts = [
        _wrapped(_head(resolved), _HEAD, columns),
        _memory(resolved, columns),
        _downloads(resolved, columns),
        _wrapped(_speed(resolved), _SPEED, columns),
    ]
    parts += [_commands(resolved, arm) for arm in resolved["arms"]]
    return printable_lines("\n\n".join(parts))


def _wrapped(text: str, indent: int, columns: int) -> str:
    """``text`` wrapped at ``columns``, with continuation lines indented by ``indent``."""
    lines = []
    for line in text.splitlines():
        lines += textwrap.wrap(
            line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines)


def _head(resolved: ResolvedProfile) -> str:
    """The lines about the profile's parts, its experiment, warnings and known issues."""
    engine = resolved["engine"]
    method = resolved["method"]
    site = resolved["site"]
    lines = [
        f"{resolved['profile']}: {resolved['title']}",
        f"hardware   {resolved['hardware']['name']}",
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
        lines.append(f"known      {first}")
        for line in more:
            lines.append(f"           {line}")
    return "\n".join(lines)


def _rounds(resolved: ResolvedProfile) -> list[str]:
    """The lines about rounds and the cost of a verdict: starts, answers, time and money (`verdict_cost.py`).

    The duration of a start is assumed here. It is measured on the machine, before a further round is decided.
    """
    experiment = resolved["experiment"]
    engine = resolved["engine"]
    site = resolved["site"]
    rounds = experiment["rounds"]
    arms = len(resolved["arms"])
    answers = arms * sum(round_load(resolved, round_number, later=[]).answers for round_number in range(1, rounds + 1))
    minutes = minutes_of(resolved)
    lines = [
        f"rounds     {rounds} at first: {rounds * arms} starts (each {shown_time(engine['ready_timeout_s'])} at most),"
        f" {answers:,} answers"
    ]
    if experiment["most_rounds"] > rounds:
        lines.append(
            f"           more while the evidence is unclear, {experiment['most_rounds']} in all at most:"
            f" {limit_words(experiment['budget'])} (experiment.budget)"
        )
    else:
        lines.append(f"           and no more than these {rounds} (experiment.budget)")
    small_gain = minutes["small_gain"]
    lines += [
        f"verdict    at a gain of {GAIN:g} about {minutes['answers']:g} min of answers and {minutes['starts']:g} min"
        f" of starts,",
        f"           at {SMALL_GAIN:g} about {small_gain['answers']:g} and {small_gain['starts']:g},"
        f" at worst {minutes['worst']:g} min in all (load apart)",
    ]
    if (price := site.get("price_per_hour")) is not None:
        clear_s = 60 * (minutes["answers"] + minutes["starts"])  # at a clear gain, `GAIN`
        worst_s = 60 * minutes["worst"]
        currency = str(site.get("currency") or "")
        hour = money(3600, float(price), currency)
        clear = money(clear_s, float(price), currency)
        worst = money(worst_s, float(price), currency)
        lines.append(f"           at {hour} an hour: about {clear}, at worst {worst}")
    return lines


def _load(resolved: ResolvedProfile, ladder: PlannedLadder) -> list[str]:
    """The lines about the load sweep: its longest duration, and kinds with too few prompts for a verdict."""
    experiment = resolved["experiment"]
    suites = [resolved["suites"][name] for name in experiment["suites"]]
    # Of the plan only the kinds count here, which depend on neither rounds nor time limit.
    kinds = plan_of(ladder, suites, once=experiment["once"], rounds=[], timeout_s=0.0).kinds
    levels = ", ".join(map(shown_level, ladder["levels"]))
    duration = shown_time(longest_s(ladder, len(kinds), len(resolved["arms"])))
    lines = [
        f"load       {levels} {ladder['unit']}: {count(len(kinds), 'kind')} of work, {ladder['rounds']} rounds,"
        f" each step at most {ladder['seconds']:g} s, {duration} at most in all"
    ]
    for suite in suites:
        for name, kind in suite["kinds"].items():
            prompts = len(kind["prompts"]) * kind.get("repeat", 1)
            if name in map(base_kind, kinds) and prompts < FEWEST_PROMPTS:
                needs = f"a verdict over {len(ladder['levels'])} levels needs {FEWEST_PROMPTS}"
                lines.append(f"note       '{name}' has {prompts} prompts: {needs}")
    return lines


def _plugin(engine: ResolvedEngine) -> str:
    """The words about the engine's plugin; '' without one."""
    if not engine["plugin"]:
        return ""
    return f" with its plugin {engine['plugin']}"


def _image(resolved: ResolvedProfile) -> list[str]:
    """The line about the image to pull, and whether its tag is pinned; empty for an engine without an image."""
    name = image_of(resolved)
    if not name:
        return []
    if "@sha256:" in name:
        return [f"image      {name}"]
    if pinned := resolved.get("image_digest"):
        return [f"image      {name}, pinned: {pinned}"]
    return [f"image      {name}, a tag; the first pull pins its digest (pins.json)"]


def _derived(image: DerivedImage | None) -> list[str]:
    """The line about an image that is built on the machine; empty if there is none."""
    if image is None:
        return []
    return [f"image      {image['name']}: built on the box from {image['base']} with {', '.join(image['packages'])}"]


def _memory(resolved: ResolvedProfile, columns: int) -> str:
    """The table of the planned memory by arm, in GB per device, and how to read it."""
    rows = []
    for arm, data in resolved["arms"].items():
        fit = data["fit"]
        usable = fit["memory"] * fit["utilization"]
        sizes = map(_gb, [usable, fit["weights"], fit["draft"], fit["overhead"], fit["kv_needed"], fit["left"]])
        rows.append([arm, *sizes, f"{fit['longest_context']:,}"])
    fit = resolved["arms"]["baseline"]["fit"]
    bound = resolved["target"].get("bound")
    head = ["memory, GB/device", "usable", "weights", "draft", "overhead", "KV cache", "left", "longest context"]
    notes = (
        f"usable = {fit['utilization']:.0%} of {_gb(fit['memory'])} GB;"
        f" KV cache for a context of {fit['context']:,} tokens, {count(fit['sequences'], 'sequence')};"
        " overhead is assumed, not measured"
    )
    if bound:
        notes += f"; the KV cache is {bound} this size, as the model's config.json was not understood whole"
    return f"{table(head, rows, columns)}\n{_wrapped(notes, indent=0, columns=columns)}"


def _downloads(resolved: ResolvedProfile, columns: int) -> str:
    """The table of the weights: their sources, and their sizes to download and on disk in GB."""
    rows = []
    download = disk = 0  # bytes in sum
    for item in resolved["weights"]:
        fetched = 0
        if item["source"] in ("hub", "package"):
            fetched = item["bytes"]
        download += fetched
        disk += item["bytes"]
        rows.append([item["name"], _where_from(item), _gb(fetched), _gb(item["bytes"])])
    rows.append(["all", "", _gb(download), _gb(disk)])
    folders = f"\nbelow {resolved['site']['models_dir']}"
    return table(["weights", "from", "download GB", "disk GB"], rows, columns) + folders


def _where_from(item: WeightItem) -> str:
    """The source of some weights in words."""
    source = item["source"]
    details = item["details"]
    if source == "hub":
        return f"Hugging Face: {details['repo']} at {(item.get('pinned') or details['revision'])[:12]}"
    if source == "package":
        return f"PyPI: {details['name']} {details['version']}"
    if source == "derived":
        return f"made here from {details['from']} ({details['recipe']})"
    return "is there already"


def _speed(resolved: ResolvedProfile) -> str:
    """The lines about the expected speed: the decode limit, and the speed-up if the profile assumes an acceptance."""
    expected = resolved["expectation"]
    lines = [
        f"decode limit  {expected['decode_limit_tok_s']:,.1f} tok/s for one user without speculation:"
        f" {_gb(expected['bandwidth_bytes_s'])} GB/s memory bandwidth"
        f" / {_gb(expected['bytes_per_token'])} GB read per token"
    ]
    if expected["acceptance"] is None:
        lines.append("speed-up      no estimate: the profile assumes no acceptance rate")
    else:
        lines.append(f"speed-up      {expected_words(expected)}")
        accepted = mean_acceptance_length(expected["acceptance"], expected["num_speculative_tokens"])
        lines.append(
            f"              at a mean acceptance length of {accepted:.2f}: K={expected['num_speculative_tokens']}, each"
            f" token accepted with a={expected['acceptance']:g}, from {expected['acceptance_source']}"
        )
        best = expected["best_tokens"]
        if best not in (None, expected["num_speculative_tokens"]):
            lines.append(f"              with this a, K={best} would gain most")
        lines.append(
            "              for short contexts, from what a step reads, computes and drafts (docs/measuring.md)"
        )
    return "\n".join(lines)


def _commands(resolved: ResolvedProfile, arm: str) -> str:
    """The command of an arm's server, a flag per line, and its configuration file if it has one."""
    data = resolved["arms"][arm]
    words = [f"{name}={shell_words(value)}" for name, value in data["environment"].items()]
    lines = ["  " + " ".join([*words, shell_words(data["command"])])]
    for flag in data["flags"]:
        lines.append(f"    {shell_words(flag)}")
    if config := data["config"]:
        lines.append(f"    {shell_words([config['flag'], config['file']])}")
    text = f"{arm} arm\n" + " \\\n".join(lines)
    if config:
        text += f"\n\n  {config['file']}\n" + textwrap.indent(yaml_block(config["data"]), "    ")
    return text


def _gb(size: float) -> str:
    """A size in bytes as GB (10^9), without the unit; two decimal places below 10 GB, else one."""
    return f"{size / GB:,.2f}" if abs(size) < 10 * GB else f"{size / GB:,.1f}"
