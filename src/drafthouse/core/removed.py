"""Names that Drafthouse has removed (verbs, options, variables, keys, profiles), and what replaces each of them.

Using a removed name is an error that names the replacement. CHANGELOG.md lists the same names with the same texts in
its sections "Removed"; a test compares them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from .errors import Problem

#: The kind of a name: a verb of `drafthouse` (a command), a target of make, an option of a verb ("bench --processes"),
#: a variable of an inventory, a variable of make, a key of a profile or catalogue entry (its full path), a value of one
#: ("watchdog.mode: schedule"), or a profile.
Place = Literal["verb", "target", "option", "variable", "make variable", "key", "value", "profile"]


class Removed(NamedTuple):
    """A removed name; ``instead`` is the advice that a user gets: what to type now."""

    place: Place
    name: str
    instead: str


OFFLINE = (
    "set drafthouse_offline, drafthouse_find_links (a folder of wheels) and drafthouse_weights_from; an image comes by"
    " docker image save and load (docs/weights-elsewhere.md)"
)
#: For the profiles whose draft was a head with random weights, made for tests.
_MADE_HEAD = "use cpu-smollm2-vllm-ngram; a head of your own stands in a profile of your own (docs/models.md)"

REMOVED: tuple[Removed, ...] = (
    Removed("option", "export --check", "check the file with the command of its tool that its comment names"),
    Removed("make variable", "CHECK", "check the file with the command of its tool that its comment names"),
    Removed("variable", "box_env_uv_version", "leave it out: uv's version comes from its lock, with its hash"),
    # The report as a row, and the nearest command of another engine.
    Removed("verb", "share", "drafthouse report --row"),
    Removed("target", "share", "drafthouse report --row"),
    Removed(
        "option",
        "translate --to",
        "write the profile with --profile and set another `engine` in it; drafthouse render shows the command",
    ),
    # A report from two result files.
    Removed("option", "report --baseline", "drafthouse judge BASELINE SPECULATIVE"),
    Removed("option", "report --speculative", "drafthouse judge BASELINE SPECULATIVE"),
    Removed("option", "report --resolved", "leave it out: drafthouse judge needs no profile"),
    Removed("option", "report --ladder", "leave it out: drafthouse judge takes the results of several loads"),
    Removed("option", "report --host", "leave it out: a report made again keeps its box's name"),
    # Other benchmark clients, run by bench.
    Removed("option", "bench --client", "run the other tool against the same address, as docs/second-opinion.md shows"),
    Removed("option", "bench --client-home", "leave it out: run the other tool from its own environment"),
    Removed("option", "bench --client-keep", "leave it out: the other tool writes its own result file"),
    Removed("option", "bench --client-tokenizer", "leave it out: give the other tool its own tokenizer"),
    # Load from several processes and load boxes, and on a fleet.
    Removed("option", "bench --arm", "leave it out: experiment.ladder in a profile measures both arms"),
    Removed("option", "bench --from", "run bench on the load box"),
    Removed("option", "bench --from-python", "leave it out: run bench on the load box"),
    Removed("option", "bench --metrics", "--metrics-url names the server's counters; a front has none"),
    Removed("option", "bench --metrics-key-file", "leave it out: counters are read with the key of --api-key-file"),
    Removed("option", "bench --processes", "leave it out: one process follows 25,600 chunks per second"),
    Removed("option", "bench --round", "leave it out: bench measures all --rounds"),
    Removed("verb", "fleet-measure", "drafthouse bench --base-url FRONT --ladder LEVELS, as for any server"),
    Removed("verb", "fleet-report", "drafthouse bench --base-url FRONT --ladder LEVELS prints the sweep"),
    Removed("target", "fleet-measure", "drafthouse bench --base-url FRONT --ladder LEVELS, as for any server"),
    Removed("target", "fleet-report", "drafthouse bench --base-url FRONT --ladder LEVELS prints the sweep"),
    Removed("make variable", "LADDER", "drafthouse bench --base-url FRONT --ladder LEVELS prints the sweep"),
    # Speculation switched by batch size.
    Removed(
        "verb",
        "compare-schedule",
        "measure the option by batch size as a profile of its own, and compare the reports: drafthouse compare A B",
    ),
    Removed(
        "value",
        "watchdog.mode: schedule",
        "report or restart; give the engine's own option by batch size in speculation.options",
    ),
    Removed("variable", "watchdog_overrides", "leave it out: the watchdog reads the resolved profile"),
    # Weights from another box over SSH.
    Removed(
        "variable",
        "drafthouse_weights_from_box",
        "set drafthouse_weights_from to a folder or mount of the box that has them (docs/weights-elsewhere.md)",
    ),
    Removed("variable", "drafthouse_lan_address", "leave it out: no box fetches weights from another one"),
    Removed("variable", "drafthouse_lan_port", "leave it out: no box fetches weights from another one"),
    # The offline bundle.
    Removed("verb", "bundle", OFFLINE),
    Removed("target", "bundle", OFFLINE),
    Removed("make variable", "BUNDLE", OFFLINE),
    Removed("variable", "drafthouse_bundle", OFFLINE),
    # Profiles of models that were made for tests.
    Removed("profile", "cpu-smollm2-vllm-dflash", _MADE_HEAD),
    Removed("profile", "cpu-smollm2-vllm-draft", "use cpu-smollm2-draft, which serves a draft model in llama.cpp"),
    Removed("profile", "cpu-smollm2-vllm-eagle3", _MADE_HEAD),
    Removed("profile", "cpu-smollm2-vllm-mtp", _MADE_HEAD),
    Removed("profile", "cpu-smollm2-vllm-suffix", "use cpu-smollm2-vllm-ngram; rtx6000-gptoss-suffix is for a GPU"),
    # The load balancer, the rolling upgrade with a verdict, and the monitoring of a fleet.
    Removed("verb", "fleet-upgrade", "drafthouse fleet upgrade changes one box after the other"),
    Removed("target", "fleet-status", "drafthouse fleet status"),
    Removed("target", "fleet-drain", "drafthouse fleet drain HOST"),
    Removed("target", "fleet-undrain", "drafthouse fleet undrain HOST"),
    Removed("target", "fleet-upgrade", "drafthouse fleet upgrade changes one box after the other"),
    Removed("make variable", "CANARY", "leave it out: drafthouse fleet upgrade begins with the inventory's first box"),
    Removed("make variable", "SHORT", "leave it out: a box that somebody drained is changed too, and stays out"),
    Removed("make variable", "TIMEOUT", "drafthouse fleet drain HOST --timeout SECONDS"),
    Removed("key", "fleet.probe_s", "leave it out: after 10 s without an answered request a token is asked"),
    Removed("variable", "gateway_metrics", "leave it out: each box's own monitoring reads its engine's counters"),
    Removed("variable", "monitoring_fleet", "leave it out: each box has its own monitoring"),
)


def removed(place: Place, name: str, where: str = "") -> Problem | None:
    """The problem that a removed name of the kind ``place`` is used, at ``where`` if known; None for any other name."""
    for old in REMOVED:
        if (old.place, old.name) == (place, name):
            return Problem("removed", f"the {place} {name}, which was removed", "what replaced it", old.instead, where)
    return None
