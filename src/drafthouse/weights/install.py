"""Put all weights of a profile in place, then check that they can be loaded and fit together.

Runs on the box, the machine that serves the model. An item is one entry of the profile's weights; a hub item
comes from the Hugging Face hub. A note beside the weights (`<path>.drafthouse.json`) records which files were verified
and which checks passed, so that a second run neither reads nor downloads them. Its identity is a hash of their source.
Items run in parallel unless a recipe derives one from another. All hub items share one set of download streams.
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
from .live_head import ExpectedHead, check_head_on_disk
from .snapshot import Placed, Wish, place_snapshots
from .sources import ItemResult, Tools, check_at_path, put_derived, put_from_package

if TYPE_CHECKING:
    from drafthouse.core.progress import Tell


__all__ = ["Tools", "put_all"]


class FromHub(Placed, ItemResult):
    """Result for an item from the hub: ``notes`` has its lines for the user, ``note`` the same lines as one text."""


def put_all(
    items: Sequence[WeightItem],
    tell: Tell,
    tools: Tools,
    check_mode: bool = False,
    pair: Pair | None = None,
) -> list[ItemResult]:
    """Put all ``items`` in place, check them, and return one result for each, in the same order.

    A derived item waits for the item that it is made from, which must come before it in ``items``. The target and the
    draft of ``pair`` are compared at the end; None: there is no draft to compare. Check mode writes nothing. Raises
    DrafthouseError with all problems; a later run continues with the files downloaded until then.
    """
    hub_items = [item for item in items if item["source"] == "hub"]
    problems: list[Problem] = []
    results: list[ItemResult] = []
    # A thread for each item and one for the hub: an item that waits for another keeps its thread.
    with ThreadPoolExecutor(len(items) + 1) as pool:
        hub_future = pool.submit(_put_hub_items, hub_items, tell, tools, check_mode)
        futures: dict[str, Future[ItemResult]] = {}
        for item in items:
            input_future = None
            if item["source"] == "derived":
                input_future = futures.get(item["details"]["from"])
            futures[item["id"]] = pool.submit(
                _put_item,
                item,
                input_future=input_future,
                hub_future=hub_future,
                tell=tell,
                tools=tools,
                check_mode=check_mode,
            )
        for future in futures.values():
            try:
                results.append(future.result())
            except DrafthouseError as error:
                # A failed input fails the items derived from it too, with the same problems.
                problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise DrafthouseError(problems)
    return _with_file_checks(items, results, pair, check_mode)


def _put_item(
    item: WeightItem,
    *,
    input_future: Future[ItemResult] | None,
    hub_future: Future[dict[str, FromHub]],
    tell: Tell,
    tools: Tools,
    check_mode: bool,
) -> ItemResult:
    """Put one item in place, or wait for its result if it comes from the hub. Raises DrafthouseError.

    ``input_future``: the item that a derived one is made from, None for others. ``hub_future``: all results of the hub
    by item id. The seconds of an item from a package or a recipe do not count the wait for its input.
    """
    if input_future is not None:
        input_future.result()
    started = time.monotonic()
    if item["source"] == "hub":
        return hub_future.result()[item["id"]]
    if item["source"] == "path":
        return check_at_path(item)
    put = {"package": put_from_package, "derived": put_derived}[item["source"]]
    result = put(item, tell, tools, check_mode)
    if result["changed"]:
        result["seconds"] = round(time.monotonic() - started, 3)
    return result


# --- the Hugging Face hub -----------------------------------------------------------------------------------


def _put_hub_items(items: Sequence[WeightItem], tell: Tell, tools: Tools, check_mode: bool) -> dict[str, FromHub]:
    """Put all items from the hub in place, in one run of downloads; results by item id. Raises DrafthouseError."""
    if not items:
        return {}
    wishes = [_wish(item, tools) for item in items]
    results = place_snapshots(wishes, tell, tools.settings, check_mode)
    if tools.nearby:
        # These remarks are about the folder, so the user sees them once, with the first item.
        results[0]["notes"] += tools.nearby.remarks
    by_id: dict[str, FromHub] = {}
    for item, wish, result in zip(items, wishes, results, strict=True):
        if wish.hub_cache and not check_mode:
            _link_to_cache(Path(item["path"]), wish, result)
        by_id[item["id"]] = {**result, "note": "\n".join(result["notes"])}
    return by_id


def _wish(item: WeightItem, tools: Tools) -> Wish:
    """Wish for the hub repository of an item; an item whose path ends in .gguf is a single file."""
    details = item["details"]
    path = Path(item["path"])
    nearby = tools.nearby
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
        head=ExpectedHead.of(head, path) if head else None,
    )
    if nearby is None:
        return wish
    relative = nearby.relative_path_of(path)
    folder = nearby.relative_path_of(path.parent) if wish.one_file else relative
    return replace(
        wish,
        listing=lambda identity: nearby.listing(relative, wish.repo, wish.revision, identity_of=identity),
        fill_part=lambda file, part, tell: nearby.fill_from_remote_file(
            replace(file, path=f"{folder}/{file.path}"), part, tell
        ),
    )


def _link_to_cache(path: Path, wish: Wish, result: Placed) -> None:
    """Make ``path``, where the engine looks, a link to the weights in the Hugging Face cache, with a note beside it.

    The note makes the weights at ``path`` known by their identity; the files are in the note of the cache. Raises
    DrafthouseError if something other than a link is at ``path``.
    """
    weights = Path(result["path"])
    if path.suffix == ".gguf":
        weights /= path.name
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
        if not path.is_symlink() or path.readlink() != weights:
            new_link = path.with_name(f".{path.name}.link")
            new_link.unlink(missing_ok=True)
            new_link.symlink_to(weights)
            new_link.replace(path)
        note = Note(wish.identity(result["commit"]), wish.repo, wish.revision, result["commit"])
        if read_note(path).identity != note.identity:
            write_note(path, note)


# --- checking the files -------------------------------------------------------------------------------------


def _with_file_checks(
    items: Sequence[WeightItem], results: Sequence[ItemResult], pair: Pair | None, check_mode: bool
) -> list[ItemResult]:
    """Check the files, then the built-in heads, then the pair; copies of the results, with the checks' remarks.

    A check that passed since the files arrived is not repeated. A step is left out if the one before it had problems:
    it reads the same files. Raises DrafthouseError with the problems of the step.
    """
    problems: list[Problem] = []
    checked_results = [result.copy() for result in results]
    for item, result in zip(items, checked_results, strict=True):
        problems += _check_files(item, result, check_mode)
    if not problems:
        for item, result in zip(items, checked_results, strict=True):
            # In check mode the new files do not exist yet.
            if not (check_mode and result["changed"]):
                problems += _check_head(item, check_mode)
    if pair and not problems:
        # The draft's result is the last one: `supply.weight_items` lists the target before its draft.
        problems += _check_pair(pair, checked_results[-1], check_mode)
    if problems:
        raise DrafthouseError(problems)
    return checked_results


def _check_files(item: WeightItem, result: ItemResult, check_mode: bool) -> list[Problem]:
    """Problems in the headers and the index of existing weights; remarks go into the text ``result["note"]``.

    In check mode nothing is read; ``result`` says whether a real run would read them.
    """
    path = Path(item["path"])
    if read_note(path).checked.get("files") or not path.exists():
        return []
    if check_mode:
        # A real run records the check in the note, except for weights at the user's own path, which have no note.
        if item["source"] != "path":
            result["changed"] = True
        return []
    problems = check_model(path)
    result["note"] = "\n".join(filter(None, [result["note"], *remarks(path)]))
    if not problems:
        _record_check(path, {"files": True})
    return problems


def _check_pair(pair: Pair, result: ItemResult, check_mode: bool) -> list[Problem]:
    """Reasons why a draft cannot draft for its target; [] if it can. ``result``: the draft's.

    A pair that passed, or of which a file does not exist yet, is not read. Nor is any in check mode; ``result`` then
    says whether a real run would read it.
    """
    target = Path(pair["target_path"])
    draft = Path(pair["draft_path"])
    # A new target, draft or method needs a new check.
    pair_key = [read_note(target).identity, read_note(draft).identity, dict(pair["method"])]
    if not target.exists() or not draft.exists() or read_note(draft).checked.get("pair") == pair_key:
        return []
    if check_mode:
        # Weights at the user's own path have no note and so an empty identity: nothing is recorded for them.
        if all(pair_key[:2]):
            result["changed"] = True
        return []
    problems = check_pair(target, draft, pair["method"])
    if not problems:
        _record_check(draft, {"pair": pair_key})
    return problems


def _check_head(item: WeightItem, check_mode: bool) -> list[Problem]:
    """Problems in the draft head inside the target's weights; [] for weights that are to have none.

    A head that passed is not read again. Check mode reads it but does not record that it passed.
    """
    path = Path(item["path"])
    head = item.get("builtin_head")
    if head is None or not path.exists() or read_note(path).checked.get("head") == head:
        return []
    problems = check_head_on_disk(ExpectedHead.of(head, path), path)
    if not problems and not check_mode:
        _record_check(path, {"head": head})
    return problems


def _record_check(path: Path, passed: Checked) -> None:
    """Record passed checks in the note; weights that the user put at a path have no note, so nothing is recorded."""
    note = read_note(path)
    if note.identity:
        with disk_trouble(path):
            write_note(path, replace(note, checked={**note.checked, **passed}))
