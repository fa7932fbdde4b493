"""Find the best K, method and draft of the catalogue for a profile, on the box of its inventory, within a budget.

Examples:
  drafthouse tune rtx6000-qwen-eagle3 --budget 30m
  drafthouse tune cpu-smollm2-draft --budget 10m --inventory local
  drafthouse tune h100-llama33-ngram --budget 1h --inventory vastai -- --limit box1
  drafthouse tune cpu-smollm2-draft --list          (show the candidates; start nothing)

The winner is measured again beside the baseline and the original profile, on prompts that the search did not use. If it
is better, it is written to profiles/NAME-tuned.yml. The same command continues after a kill or Ctrl-C. The total time
never exceeds the budget. docs/tune.md explains the decision rule. Words after -- are passed to ansible-playbook.

Exit status: 0 the search finished, better or not; 2 an error (where, found, needed, do); 3 not possible
on this machine; 130 Ctrl-C (docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import one_problem
from ..core.exit_codes import DONE, INTERRUPTED
from ..core.places import ROOT, WORK, playbook
from ..profiles.budget import seconds_in
from ..profiles.inventory_variables import site_on
from ..profiles.overrides import laid_over
from ..profiles.own_entries import shown_path
from ..profiles.own_folders import own_folder
from ..profiles.result_key import measured_key
from ..profiles.workspace import catalog_for, inventory_path, load_suites, resolved_profile
from ..tuning.journal import Journal, JournaledTrial
from ..tuning.prompt_split import SUITE, TunePrompts, prompts_for
from ..tuning.result import (
    BETTER,
    UNCONFIRMED,
    WRONG_OUTPUT,
    Judgement,
    as_json,
    evidence,
    judge,
    profile_yaml,
    text_of,
    tuned_profile,
)
from ..tuning.runner import STOP, BoxTrial, Plays
from ..tuning.search import SearchResult, tune
from ..tuning.space import catalogue_space
from ..tuning.tries import KILL_S, RESERVE_S, STOP_S
from ..tuning.types import Space
from ..tuning.under_load import front_svg, points_of
from .parser import Parser, parser_of
from .profile_arguments import add_missing_entries, inventory_of, overrides, set_option

if TYPE_CHECKING:
    from drafthouse.profiles.catalog import Catalog
    from drafthouse.profiles.profile_types import Profile, Tuned, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile

# Seconds of the shortest budget: starting one server, one answer and stopping the server take about that long.
_LEAST_S = 90
# Seconds between two lines of progress where the output is no terminal.
_QUIET_S = 30.0


@dataclass(frozen=True)
class TuningJob:
    """A checked search that is ready to start: the profile ``name`` on the boxes of ``inventory``."""

    name: str
    inventory: str
    profile: Profile  # as it is in its file
    overrides: Unchecked
    """The changes of --set, made to the profile before the search."""
    resolved: ResolvedProfile
    space: Space
    prompts: TunePrompts
    folder: Path  # of the journal, the log and result.json
    target: Path  # the file of the new profile
    search_hash: str
    """Hash of all that the search depends on; a journal with another hash is not continued."""


def options() -> Parser:
    """The argument parser of `drafthouse tune`."""
    parser = parser_of(__doc__, "tune", takes_words=True)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("--budget", default="30m", help="total time: 90s, 30m, 1h30m (default: 30m)")
    parser.add_argument("--inventory", help="inventory name (default: the hardware's)")
    set_option(parser)
    parser.add_argument("--list", action="store_true", help="list the candidates; start nothing")
    parser.add_argument("--again", action="store_true", help="discard the journal and start again (AGAIN=1)")
    parser.add_argument(
        "--to", type=Path, metavar="FILE", help="file of the new profile (default: NAME-tuned.yml beside the profile)"
    )
    return parser


def seconds_of(text: str) -> int:
    """The seconds of a budget such as `1h30m`, `30m`, `90s` or `1800`.

    Raises DrafthouseError for any other text, and for less than `_LEAST_S`.
    """
    seconds = seconds_in(text) or 0
    if seconds < _LEAST_S:
        raise one_problem(
            "invalid-option",
            f"'{text}'",
            f"a time of {_LEAST_S} s or more, like 30m or 1h30m",
            "correct it",
            "BUDGET (--budget)",
        )
    return seconds


def prepare(args: argparse.Namespace, budget_s: int) -> TuningJob:
    """The search that the arguments describe, with everything checked that can be checked without a box."""
    name = args.profile
    inventory = args.inventory or inventory_of(name)
    add_missing_entries(name, args.set, inventory)
    base = overrides(args.set)
    site, _ = site_on(inventory)
    resolved = resolved_profile(name, site, base)
    catalog = catalog_for(inventory)
    suites = load_suites(resolved["experiment"]["suites"])
    kinds = {key: list(suite["kinds"]) for key, suite in suites.items()}
    catalogue = catalogue_space(catalog, name, site, kinds, base)
    # The same profile with every prompt of its suites, cut to the context length like those of the experiment.
    uncut = resolved_profile(name, site, laid_over(base, {"experiment": {"prompts_per_kind": None}}))
    prompts = prompts_for(resolved, suites[SUITE], uncut["suites"])
    space = Space(
        catalogue.families,
        prompts=len(prompts.search),
        final_prompts=len(prompts.final),
        final_weight=prompts.weight,
        first_prompts=prompts.first,
        options=catalogue.options,
        load=min(catalogue.load, len(prompts.search)),
        left_out=catalogue.left_out,
    )
    target = args.to or _default_target(catalog, name)
    check_target(target)
    families = [[family.id, family.tokens, family.first] for family in space.families]
    # All that a trial's result or the choice depends on: a search with other inputs begins anew.
    asks = [prompts.search, prompts.final, prompts.gates]
    inputs = [families, space.options, space.load, asks, budget_s, inventory, args.words, base]
    key = hashlib.sha256(json.dumps([measured_key(resolved), *inputs], default=str).encode()).hexdigest()[:16]
    folder = WORK / "build" / "tune" / f"{name}-{Path(inventory).name}"
    return TuningJob(
        name=name, inventory=inventory, profile=catalog.profiles[name], overrides=base, resolved=resolved, space=space,
        prompts=prompts, folder=folder, target=target, search_hash=key,
    )  # fmt: skip


def _default_target(catalog: Catalog, name: str) -> Path:
    """The new profile's file NAME-tuned.yml, beside the profile, or in the user's folder for a profile of a wheel."""
    file = ROOT / catalog.file(name)
    folder = file.parent
    if folder == ROOT / "profiles":
        folder = own_folder(ROOT)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-tuned.yml"


def check_target(path: Path) -> None:
    """Raise DrafthouseError where the new profile cannot be written, before any time is spent.

    A profile that the tuner wrote is replaced, one that a person wrote is not.
    """
    unwritable = ""  # the reason, '' if it is writable
    if path.is_dir():
        unwritable = "a folder"
    elif not path.parent.is_dir():
        unwritable = f"no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        unwritable = "a path that is not writable"
    if unwritable:
        raise one_problem(
            "file-unwritable",
            unwritable,
            "a file in an existing folder, for the new profile",
            "give --to FILE",
            str(path),
        )
    if path.exists() and "\ntuned:" not in path.read_text("utf-8", errors="replace"):
        raise one_problem(
            "file-exists", "a profile that the tuner did not write", "another name", "give --to FILE", str(path)
        )


class Show:
    """Progress on standard error: lines that stay, and on a terminal one status line that is overwritten.

    ``spent_s``: seconds of the budget that earlier runs of the search took.
    """

    def __init__(self, budget_s: float, spent_s: float) -> None:
        self._began = time.monotonic() - spent_s
        self._budget_s = budget_s
        self._terminal = sys.stderr.isatty()
        self._next_status = 0.0  # the next status line is printed from then on, on `time.monotonic`

    def line(self, text: str) -> None:
        """Print a line that stays, after the time spent and the budget (minutes:seconds)."""
        clear = "\r\x1b[K" if self._terminal else ""
        print(f"{clear}[{self._clock()}] {text}", file=sys.stderr, flush=True)

    def status(self, text: str) -> None:
        """Overwrite the status line of a terminal; elsewhere print a line, but at most one in `_QUIET_S` seconds."""
        if self._terminal:
            print(f"\r\x1b[K[{self._clock()}] {text[:100]}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + _QUIET_S
            self.line(f"  {text}")

    def _clock(self) -> str:
        spent_s = int(time.monotonic() - self._began)
        budget_s = int(self._budget_s)
        return f"{spent_s // 60}:{spent_s % 60:02d} of {budget_s // 60}:{budget_s % 60:02d}"


def search(job: TuningJob, budget_s: int, args: argparse.Namespace, begun: float) -> SearchResult:
    """Run the search on the box; however it ends, restore the server that ran before.

    ``begun`` is the monotonic time (s) from which the budget is counted.
    """
    journal_file = job.folder / "journal.jsonl"
    if args.again:
        journal_file.unlink(missing_ok=True)
    journal = Journal(journal_file, job.search_hash, early_s=time.monotonic() - begun)
    end_at = time.monotonic() + budget_s - journal.spent_s  # the budget covers all runs of this search
    show = Show(budget_s, journal.spent_s)
    if journal.resumed:
        show.line(
            f"continuing with {len(journal.outcomes)} trials of an earlier run, {journal.spent_s:.0f} s of the budget"
        )
    log = job.folder / "ansible.log"
    show.line(f"Ansible's output goes to {log.relative_to(WORK)}")
    plays = Plays(str(inventory_path(job.inventory)), args.words, log, show.status, journal.touch)
    if plays.end_orphan():
        show.line("stopped the playbook that a killed run had left running")
    trial = BoxTrial(
        job.name,
        job.prompts,
        plays,
        job.folder,
        concurrency=int(job.resolved["experiment"]["concurrency"]),
        budget_s=end_at - time.monotonic() - RESERVE_S,
        overrides=job.overrides,
    )
    try:
        return tune(job.space, JournaledTrial(trial, journal), budget_s, show.line)
    finally:
        if trial.started:
            _restore(job, trial, show, end_at)
        journal.close()


def _restore(job: TuningJob, trial: BoxTrial, show: Show, end_at: float) -> None:
    """Restore what served before the trials, by the monotonic time ``end_at``; tell the command if that fails."""
    show.line("ending the trials: restoring what served before")
    # Killing a stop that hangs takes time too, and must fit into the budget.
    stop_s = max(0.0, min(STOP_S, end_at - time.monotonic() - KILL_S / 2))
    if not trial.stop(stop_s):
        show.line(
            f"not restored in {stop_s:.0f} s; run: "
            f"ansible-playbook {playbook(STOP[0])} -i {inventory_path(job.inventory)} -e profile={job.name}"
        )


def finish(job: TuningJob, budget_s: int, result: SearchResult) -> None:
    """Print the result, save it to result.json, and write the new profile if it is better.

    No profile is written if the comparison is not confirmed, nothing is better, or the output is wrong. Raises
    DrafthouseError if it cannot be written.
    """
    judgement: Judgement = judge(result)
    (job.folder / "result.json").write_text(as_json(result, judgement), "utf-8")
    print(text_of(result, judgement, job.space.left_out, job.prompts.notes, job.space.load))
    if result.loaded:
        plot = job.folder / "under-load.svg"
        plot.write_text(front_svg(points_of(result.loaded, result.original.id), job.space.load), "utf-8")
        print(f"plot: {shown_path(WORK, plot)}")
    if judgement.word == UNCONFIRMED:
        print("\nno new profile: the same command repeats the last step while there is time; AGAIN=1 (--again) all")
        return
    if judgement.word not in BETTER:
        why = "nothing better was found"
        if judgement.word == WRONG_OUTPUT:
            why = "its output is not the model's own"
        print(f"\nno new profile: {why}")
        return
    about: Tuned = {
        "from": job.name,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "inventory": job.inventory,
        "engine": f"{job.resolved['engine']['name']} {job.resolved['engine']['version']}",
        "budget_s": budget_s,
    }
    new = tuned_profile(job.profile, result.winner, evidence(result, judgement, about, job.prompts))
    try:
        job.target.write_text(profile_yaml(new), "utf-8")
    except OSError as error:
        raise one_problem(
            "file-unwritable",
            f"the new profile could not be written: {error.strerror}",
            "a writable path",
            "create one, or pass --to FILE; the same command then writes it without measuring again",
            str(job.target),
        ) from None
    name = job.target.stem
    command = f"  (drafthouse run {name})" if name in catalog_for(job.inventory).profiles else ""
    print(f"\nwritten: {shown_path(WORK, job.target)}{command}")


def listed(job: TuningJob) -> str:
    """The candidates of the search, the options left out, and the number of prompts, as text."""
    lines = [f"{family.id}: K = {', '.join(map(str, family.tokens))}" for family in job.space.families]
    lines[0] += f"  (the profile: K = {job.space.original.tokens})"
    lines += [f"{path}: {', '.join(map(str, values))}" for path, values in job.space.options]
    if job.space.load:
        lines.append(f"the best also with {job.space.load} concurrent requests")
    lines += [f"not tried: {name}: {why}" for name, why in job.space.left_out]
    lines.append(f"{job.space.prompts} prompts to search with, {job.space.final_prompts} answers to judge by")
    lines += [f"note: {note}" for note in job.prompts.notes]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the search and write the new profile, or only list the candidates."""
    begun = time.monotonic()
    args = options().parse_args(argv)
    budget_s = seconds_of(args.budget)
    job = prepare(args, budget_s)
    if args.list:
        print(listed(job))
        return DONE
    try:
        finish(job, budget_s, search(job, budget_s, args, begun))
    except KeyboardInterrupt:
        print(f"\nstopped; the same command continues ({job.folder.relative_to(WORK)})", file=sys.stderr)
        return INTERRUPTED
    return DONE
