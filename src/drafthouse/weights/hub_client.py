"""What a revision on the Hugging Face hub consists of: its files, sizes and hashes, asked for before the first byte.

The library's own session, headers and errors are used (``huggingface_hub``; only in the box's environment), its calls
are not: of those that list a repository some have no timeout, and a pause that a server asks for is kept however long.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from ..core.bounded import HUB_ANSWER_BYTES, HUB_ANSWER_COMMAS, HUB_FILES, HUB_PAGES, Deadline, TooMuch, joined, within
from ..core.documents import json_of, text_of
from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.pins import is_commit
from ..core.retry import PASSING, Patience, asked_to_wait

if TYPE_CHECKING:
    import httpx2

UNRESOLVED = "unresolved"
_MOVES = 5  # redirects of one answer: a repository that was renamed has one
_CONNECTIONS = 3  # tries where nobody answers at all: a box without a network should say so soon
ANSWER_S = 30.0  # for one answer of the hub's API; connecting included
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DAMAGED = "find out who answers at this address before you trust it; nothing was fetched"


@dataclass(frozen=True)
class Xet:
    """What the hub's chunk store knows a file by, and where a key for it is had."""

    hash: str
    route: str


@dataclass(frozen=True)
class RemoteFile:
    """A file of a revision. ``size`` in bytes; large ones (LFS) have a ``sha256``, others git's blob id."""

    path: str
    size: int
    sha256: str | None
    git_sha1: str | None
    url: str = ""
    xet: Xet | None = None

    @property
    def key(self) -> str:
        """The hash that the file is known and verified by."""
        return self.sha256 or self.git_sha1 or ""

    @property
    def source(self) -> tuple[str, str, str]:
        """The endpoint, the repository and the commit that the address names."""
        before, _, rest = self.url.partition("/resolve/")
        parts = urlsplit(before)
        names = parts.path.strip("/").split("/")
        root = urlunsplit((parts.scheme, parts.netloc, "/".join(["", *names[:-2]]), "", ""))
        return root.rstrip("/"), "/".join(names[-2:]), rest.split("/")[0]


@dataclass(frozen=True)
class Snapshot:
    """``asked``: the branch, commit or ``unresolved`` that was wanted. ``commit``: the one it is.

    ``from_hub``: the hub was asked for it, and not a note.
    """

    repo: str
    asked: str
    commit: str
    files: tuple[RemoteFile, ...]
    from_hub: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def commit_now(repo: str, revision: str, token: str | None, endpoint: str | None, patience: Patience) -> str:
    """The commit that a branch is at this moment. Raises DrafthouseError."""
    return _Asking(_root_of(endpoint), repo, revision, token, patience).commit()


def _root_of(endpoint: str | None) -> str:
    from huggingface_hub import constants  # noqa: PLC0415 (only in the box's environment)

    return str(endpoint or constants.ENDPOINT).rstrip("/")


@dataclass(frozen=True)
class About:
    """What a repository's page says of it: its licence as the card names it, and whether that must be accepted."""

    license: str
    gated: bool


def about(
    repo: str, token: str | None, endpoint: str | None, patience: Patience, deadline: Deadline | None = None
) -> About:
    """What the hub says of a repository. Raises DrafthouseError."""
    info = _Asking(_root_of(endpoint), repo, UNRESOLVED, token, patience, deadline).json(f"/api/models/{repo}")
    card, licence = info.get("cardData"), "unknown"
    if isinstance(card, dict) and isinstance(card.get("license"), str):
        licence = card["license"]
    return About(licence, bool(info.get("gated")))


def look_up(
    repo: str,
    revision: str,
    *,
    allow: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    patience: Patience | None = None,
    deadline: Deadline | None = None,
) -> Snapshot:
    """The files of ``revision`` that ``allow`` and ``ignore`` (fnmatch patterns) leave.

    ``unresolved`` and branches become the commit that they are now. ``token`` alone is used: none that somebody left
    on the box. Raises DrafthouseError: gated, no such repository or revision, patterns that match nothing, a listing
    that cannot be trusted, a hub out of reach.
    """
    from huggingface_hub import hf_hub_url  # noqa: PLC0415 (only in the box's environment)
    from huggingface_hub.utils import filter_repo_objects  # noqa: PLC0415

    root = _root_of(endpoint)
    asking = _Asking(root, repo, revision, token, patience or Patience(tries=5), deadline)
    commit = asking.commit()
    # The listing of a gated repository is open to all: whether its files are, this tells before the first byte.
    asking.json(f"/api/models/{repo}/auth-check")
    entries = asking.pages(f"/api/models/{repo}/tree/{commit}?recursive=true&expand=false")
    listed = [_file(entry, repo, commit, root) for entry in entries if entry.get("type") == "file"]
    names = [file.path for file in listed]
    _check_names(names, f"{repo} at {commit}")
    # huggingface_hub takes None for no pattern at all, and an empty list for none that matches.
    kept = set(filter_repo_objects(names, allow_patterns=allow or None, ignore_patterns=ignore or None))
    if not kept:
        raise one_problem(
            "no-weights",
            f"none of the {len(listed)} files of {repo} at {commit[:12]}",
            f"files that match allow {list(allow or [])} and not ignore {list(ignore or [])}",
            "correct source.hub.allow and source.hub.ignore",
            repo,
        )
    files = []
    for file in sorted(listed, key=lambda file: file.path):
        if file.path in kept:
            url = hf_hub_url(repo, file.path, revision=commit, endpoint=root)
            files.append(replace(file, url=url))
    return Snapshot(repo, revision, commit, tuple(files), from_hub=True)


# --- a listing is other people's text ---------------------------------------------------------------------


def _file(entry: Mapping[str, Any], repo: str, commit: str, root: str) -> RemoteFile:
    """An entry of the listing; the hashes become names of files, so they must be nothing else."""
    lfs = entry.get("lfs") or {}
    if not isinstance(lfs, dict):
        lfs = {"oid": None}
    path, size = entry.get("path"), lfs.get("size", entry.get("size"))
    sha256, git_sha1 = lfs.get("oid"), entry.get("oid")
    xet = entry.get("xetHash")
    has_hash = _SHA256.fullmatch(str(sha256)) if lfs else is_commit(str(git_sha1))
    has_size = type(size) is int and size >= 0
    if not (isinstance(path, str) and has_size and has_hash) or (xet is not None and not _SHA256.fullmatch(str(xet))):
        raise one_problem(
            "hub-answer-malformed",
            f"a file in the listing of {repo} with size {str(size)[:40]} and hash {str(sha256 or git_sha1)[:80]!r}",
            "a size, and a sha256 (large files) or a git blob id",
            _DAMAGED,
            f"{root}: {str(path)[:80]!r}",
        )
    file = RemoteFile(path, int(size or 0), sha256=None, git_sha1=str(git_sha1))
    if lfs:
        file = replace(file, sha256=str(sha256), git_sha1=None)
    if xet:
        file = replace(file, xet=Xet(xet, f"{root}/api/models/{repo}/xet-read-token/{commit}"))
    return file


def folders_above(name: str) -> list[str]:
    """The folders on the way to a file of a repository: ``a`` and ``a/b`` for ``a/b/c``."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _check_names(names: Sequence[str], where: str) -> None:
    """Refuse names that leave the folder, or that two files cannot have at once."""
    folders: set[str] = set()
    for name in names:
        folders.update(folders_above(name))
    seen: set[str] = set()
    for name in names:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\\" in name or not name.isprintable():
            reason = "a name below the folder, of printable characters"
        elif any(part.startswith(".drafthouse") for part in parts):
            reason = "a name that does not start with .drafthouse"
        elif name in folders or name in seen:
            reason = "a unique name"
        else:
            seen.add(name)
            continue
        raise one_problem(
            "hub-answer-malformed", f"a file called {name[:120]!r} in the listing", reason, _DAMAGED, where
        )


# --- asking -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asking:
    """Asks the hub's API about one repository, again and again where that may help."""

    root: str
    repo: str
    revision: str
    token: str | None
    patience: Patience
    deadline: Deadline | None = None

    def commit(self) -> str:
        """The commit that the revision is now."""
        at = "" if self.revision == UNRESOLVED else f"/revision/{quote(self.revision, safe='')}"
        commit = str(self.json(f"/api/models/{self.repo}{at}").get("sha"))
        is_another = is_commit(self.revision) and commit != self.revision
        if is_commit(commit) and not is_another:
            return commit
        found = f"{self.repo} at {self.revision} is commit {commit[:60]!r}"
        raise one_problem("hub-answer-malformed", found, "a commit of 40 hex digits", _DAMAGED, self.root)

    def json(self, path: str) -> dict[str, Any]:
        data, _ = self._get(self.root + path)
        if not isinstance(data, dict):
            return {}
        return data

    def pages(self, path: str) -> list[dict[str, Any]]:
        """The entries of all pages. Further pages are asked of the same host, whoever they name."""
        entries: list[dict[str, Any]] = []
        url: str | None = self.root + path
        asked = set[str]()
        while url:
            if url in asked or len(asked) >= HUB_PAGES or len(entries) > HUB_FILES:
                raise self._malformed(f"a listing without an end ({len(asked)} pages, {len(entries):,} files)")
            asked.add(url)
            page, following = self._get(url)
            if isinstance(page, list):
                entries += [entry for entry in page if isinstance(entry, dict)]
            url = self._page_here(url, following)
        return entries

    def _page_here(self, url: str, following: str | None) -> str | None:
        """The address of the next page on the hub's own host."""
        if not following:
            return None
        own = urlsplit(self.root)
        try:
            named = urlsplit(urljoin(url, following))
        except ValueError as error:
            raise self._malformed(f"the address {following[:80]!r} of its next page") from error
        return urlunsplit((own.scheme, own.netloc, named.path, named.query, ""))

    def _malformed(self, what: str) -> DrafthouseError:
        found = f"{what} for {self.repo}"
        return one_problem("hub-answer-malformed", found, "a listing as the hub gives it", _DAMAGED, self.root)

    def _moved(self, url: str, location: str) -> str:
        """The address on the hub's own host that an answer redirects to; the token goes along, so to no other host."""
        there = self._page_here(url, location)
        if there is None or urlsplit(urljoin(url, location)).netloc != urlsplit(self.root).netloc:
            raise self._malformed(f"a redirect to {location[:80]!r}")
        return there

    def _get(self, url: str, moves: int = 0) -> tuple[Any, str | None]:
        """The JSON of an answer, and the address of the next page where it names one."""
        import httpx2  # noqa: PLC0415 (what the hub's client speaks with)
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415

        for failed in range(1, self.patience.tries + 1):
            asked: float | None = None
            try:
                return self._get_once(url, moves)
            except TooMuch as error:
                raise self._malformed(str(error)) from error
            except HfHubHTTPError as error:
                problem = refusal(error, self.repo, self.revision, self.root)
                if problem:
                    raise DrafthouseError(problem) from error
                reason = f"HTTP {error.response.status_code}"
                asked = asked_to_wait(error.response.headers)
            except OfflineModeIsEnabled as error:
                raise DrafthouseError(_offline(self.repo)) from error
            except ValueError:
                reason = "an answer that is not JSON"
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                reason = f"{type(error).__name__}: {str(error)[:200]}"
                if isinstance(error, httpx2.ConnectError) and failed >= _CONNECTIONS:
                    break
            pause = self.patience.pause(failed, asked)
            if pause is None or (self.deadline is not None and pause >= self.deadline.left()):
                break
            time.sleep(pause)
        if asked is not None and asked > self.patience.longest_wait_s:
            reason += f", retry after {asked:.0f} s"
        raise DrafthouseError(out_of_reach(self.repo, self.root, reason, failed))

    def _get_once(self, url: str, moves: int) -> tuple[Any, str | None]:
        """One try of `_get`, with the redirects of its answer. Raises what the library does, and ValueError."""
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # noqa: PLC0415

        # False and not None: None would take a token that lies on the box.
        headers = build_hf_headers(token=self.token or False, library_name="drafthouse")
        wait_s = ANSWER_S if self.deadline is None else max(0.1, min(ANSWER_S, self.deadline.left()))
        answer = asked_once(url, headers, wait_s, self.deadline or Deadline(2 * ANSWER_S))
        if answer.has_redirect_location and moves < _MOVES:
            return self._get(self._moved(url, answer.headers["location"]), moves + 1)
        hf_raise_for_status(answer)
        if answer.content.count(b",") > HUB_ANSWER_COMMAS:
            raise TooMuch(f"an answer of more than {HUB_ANSWER_COMMAS:,} values")
        return json_of(text_of(answer.content)), answer.links.get("next", {}).get("url")


def asked_once(url: str, headers: Mapping[str, str], timeout_s: float, deadline: Deadline) -> httpx2.Response:
    """The hub's whole answer to a GET, redirect or not. Raises TooMuch, and what httpx2 raises.

    It is asked for as it is: no bound on its bytes would hold for what a few of them unpack to.
    """
    import httpx2  # noqa: PLC0415
    from huggingface_hub.utils import get_session  # noqa: PLC0415

    plain = {**headers, "accept-encoding": "identity"}

    def read() -> httpx2.Response:
        with get_session().stream("GET", url, headers=plain, timeout=timeout_s, follow_redirects=False) as stream:
            if stream.headers.get("content-encoding", "identity").lower() != "identity":
                raise TooMuch("a compressed answer, which was not asked for,")
            body = joined(stream.iter_raw(), HUB_ANSWER_BYTES, deadline)
            return httpx2.Response(stream.status_code, headers=stream.headers, content=body, request=stream.request)

    return within(deadline.left(), read)


def out_of_reach(repo: str, root: str, reason: str, tries: int) -> Problem:
    """What is said when the hub did not answer ``tries`` times."""
    times = f", {tries} times in a row" if tries > 1 else ""
    return Problem(
        "hub-unreachable",
        f"no answer about {repo} from {root}: {reason}{times}",
        "access to the Hugging Face hub",
        "check the network (HF_ENDPOINT names a mirror), then run again: it resumes",
        repo,
    )


def _offline(repo: str) -> Problem:
    return Problem(
        "weights-not-offline",
        f"{repo} must be downloaded, but HF_HUB_OFFLINE is set",
        "access to the hub, or the weights in place",
        "unset it, or put the weights in place",
        repo,
    )


def refusal(error: Any, repo: str, revision: str, root: str) -> Problem | None:
    """What an error of the library (HfHubHTTPError) means where trying again is no use, otherwise None."""
    from huggingface_hub.errors import (  # noqa: PLC0415
        DisabledRepoError,
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = error.response.status_code
    reason = str(getattr(error, "server_message", "") or "")[:200]
    if isinstance(error, GatedRepoError):
        return _gated(repo, root)
    if isinstance(error, RevisionNotFoundError):
        return _no_revision(repo, revision)
    if status == 401 and "credentials" in str(error).lower():
        return _bad_token(repo, reason)
    if isinstance(error, RepositoryNotFoundError):
        return _no_repository(repo)
    if isinstance(error, DisabledRepoError):
        found = f"{repo} is disabled on the hub"
        return Problem("hub-refused", found, "a readable one", "choose other weights", repo)
    if not 400 <= status < 500 or status in PASSING:
        return None
    found = f"{root} refuses {repo} at {revision}: HTTP {status} {reason}".rstrip()
    do = "correct source.hub, or give a token that may read it (HF_TOKEN)"
    return Problem("hub-refused", found, "an answer", do, repo)


def _gated(repo: str, root: str) -> Problem:
    return Problem(
        "hub-gated",
        f"{repo} is gated, and the token (if any) has no access to it",
        "an account that accepted its licence",
        f"accept it at {root}/{repo}, then export HF_TOKEN=... with a token of that account and run again"
        " (a fine-grained token also needs 'Read access to contents of all public gated repos')",
        repo,
    )


def _no_revision(repo: str, revision: str) -> Problem:
    return Problem(
        "no-such-revision",
        f"could not download {repo} at {revision}: the repository exists, the revision does not",
        "a commit, a branch or a tag of it",
        "correct source.hub.revision, then run again",
        repo,
    )


def _bad_token(repo: str, reason: str) -> Problem:
    found = "the hub does not accept the token from the environment or the box's login"
    if reason:
        found += f": {reason}"
    return Problem(
        "hub-token-invalid",
        found,
        "a valid token, or none for a public repository",
        "create one at https://huggingface.co/settings/tokens, then export HF_TOKEN=... and run again",
        repo,
    )


def _no_repository(repo: str) -> Problem:
    return Problem(
        "no-such-repository",
        f"no repository {repo} for this token",
        "one that it can read",
        "correct source.hub.repo, or give HF_TOKEN",
        repo,
    )
