"""Client of the Hugging Face hub's API: the commit of a revision and its files with sizes and hashes.

The session, headers and errors come from ``huggingface_hub``, which is installed on the box only. Its functions that
list a repository are not used: some have no timeout, and they sleep as long as any Retry-After header says.
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

UNRESOLVED = "unresolved"  # revision of a catalogue entry without a pin: the default branch
_MAX_REDIRECTS = 5  # for one request; a renamed repository has one
_CONNECT_TRIES = 3  # tries without a connection; few, so that a missing network is reported soon
ANSWER_S = 30.0  # time limit of one answer, connecting included
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DO_NOT_TRUST = "find out who answers at this address before you trust it; nothing was fetched"


@dataclass(frozen=True)
class Xet:
    """Hash of a file in Xet, the hub's chunk store, and the URL (``route``) that gives an access token for it."""

    hash: str
    route: str


@dataclass(frozen=True)
class RemoteFile:
    """A file of a revision."""

    path: str  # relative to the repository
    size: int  # bytes
    sha256: str | None  # of a large file (LFS), otherwise None
    git_sha1: str | None  # blob id in git, of a small file, otherwise None
    url: str = ""  # of the hub; '' if only a note on disk is known
    xet: Xet | None = None  # None if the file is not in Xet, or if that is not known

    @property
    def key(self) -> str:
        """Hash that identifies and verifies the file; '' if it has none."""
        return self.sha256 or self.git_sha1 or ""

    @property
    def source(self) -> tuple[str, str, str]:
        """Endpoint, repository and commit, taken from the URL (``ENDPOINT/ORG/NAME/resolve/COMMIT/PATH``)."""
        repo_url, _, commit_and_path = self.url.partition("/resolve/")
        parts = urlsplit(repo_url)
        names = parts.path.strip("/").split("/")
        root = urlunsplit((parts.scheme, parts.netloc, "/".join(["", *names[:-2]]), "", ""))
        return root.rstrip("/"), "/".join(names[-2:]), commit_and_path.split("/")[0]


@dataclass(frozen=True)
class Snapshot:
    """The wanted files of a revision."""

    repo: str  # ORG/NAME
    asked: str  # the requested branch, commit or ``unresolved``
    commit: str  # that ``asked`` resolves to
    files: tuple[RemoteFile, ...]
    from_hub: bool = False  # the list came from the hub, not from a note on disk

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.size for file in self.files)


def commit_now(repo: str, revision: str, token: str | None, endpoint: str | None, patience: Patience) -> str:
    """Commit that a branch points to now. ``endpoint``: None for the default hub. Raises DrafthouseError."""
    return _HubApi(root=_root_of(endpoint), repo=repo, revision=revision, token=token, patience=patience).commit()


def _root_of(endpoint: str | None) -> str:
    """URL of the hub, without a slash at its end; that of huggingface_hub if ``endpoint`` is None or ''."""
    from huggingface_hub import constants  # noqa: PLC0415 (only in the box's environment)

    return str(endpoint or constants.ENDPOINT).rstrip("/")


@dataclass(frozen=True)
class About:
    """Licence as the model card names it ("unknown" if it does not), and whether access must be granted first."""

    license: str
    gated: bool


def about(
    repo: str, token: str | None, endpoint: str | None, patience: Patience, deadline: Deadline | None = None
) -> About:
    """Licence and gating of a repository, from the hub. Raises DrafthouseError."""
    api = _HubApi(
        root=_root_of(endpoint), repo=repo, revision=UNRESOLVED, token=token, patience=patience, deadline=deadline
    )
    info = api.json(f"/api/models/{repo}")
    card = info.get("cardData")
    licence = "unknown"
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
    """Files of ``revision`` that match ``allow`` and not ``ignore`` (fnmatch patterns), sorted by path.

    ``unresolved`` and branches are resolved to their current commit. ``allow`` None or empty: all files. ``token``
    None: no token, not even one stored on the box. ``patience`` None: five tries. Raises DrafthouseError: no access, no
    such repository or revision, no matching file, a malformed listing, or no answer.
    """
    from huggingface_hub import hf_hub_url  # noqa: PLC0415 (only in the box's environment)
    from huggingface_hub.utils import filter_repo_objects  # noqa: PLC0415

    root = _root_of(endpoint)
    api = _HubApi(
        root=root, repo=repo, revision=revision, token=token, patience=patience or Patience(tries=5), deadline=deadline
    )
    commit = api.commit()
    # Anyone can list a gated repository; this request fails if the token may not read its files.
    api.json(f"/api/models/{repo}/auth-check")
    entries = api.pages(f"/api/models/{repo}/tree/{commit}?recursive=true&expand=false")
    listed = [_remote_file(entry, repo, commit, root) for entry in entries if entry.get("type") == "file"]
    names = [file.path for file in listed]
    _check_names(names, f"{repo} at {commit}")
    # For huggingface_hub, None means no pattern, and an empty list a pattern that matches no file.
    matching = set(filter_repo_objects(names, allow_patterns=allow or None, ignore_patterns=ignore or None))
    if not matching:
        raise one_problem(
            "no-weights",
            f"none of the {len(listed)} files of {repo} at {commit[:12]}",
            f"files that match allow {list(allow or [])} and not ignore {list(ignore or [])}",
            "correct source.hub.allow and source.hub.ignore",
            repo,
        )
    files = []
    for file in sorted(listed, key=lambda file: file.path):
        if file.path in matching:
            url = hf_hub_url(repo, file.path, revision=commit, endpoint=root)
            files.append(replace(file, url=url))
    return Snapshot(repo, revision, commit, tuple(files), from_hub=True)


# --- validation of a listing ------------------------------------------------------------------------------


def _remote_file(entry: Mapping[str, Any], repo: str, commit: str, root: str) -> RemoteFile:
    """File for an entry of the listing, without its URL. Raises DrafthouseError for a malformed entry.

    The key ``lfs`` says that the file is large, and has its sha256 as ``oid``; ``oid`` of the entry itself is git's
    blob id, here of a pointer only. Hashes become file names, so only hex digits are accepted.
    """
    lfs = entry.get("lfs") or {}
    if not isinstance(lfs, dict):
        lfs = {"oid": None}  # a large file without a valid hash, which is refused below
    path = entry.get("path")
    size = lfs.get("size", entry.get("size"))
    sha256 = lfs.get("oid")
    git_sha1 = entry.get("oid")
    xet = entry.get("xetHash")
    has_hash = _SHA256.fullmatch(str(sha256)) if lfs else is_commit(str(git_sha1))
    has_size = type(size) is int and size >= 0
    if not (isinstance(path, str) and has_size and has_hash) or (xet is not None and not _SHA256.fullmatch(str(xet))):
        raise one_problem(
            "hub-answer-malformed",
            f"a file in the listing of {repo} with size {str(size)[:40]} and hash {str(sha256 or git_sha1)[:80]!r}",
            "a size, and a sha256 (large files) or a git blob id",
            _DO_NOT_TRUST,
            f"{root}: {str(path)[:80]!r}",
        )
    file = RemoteFile(path, int(size or 0), sha256=None, git_sha1=str(git_sha1))
    if lfs:
        file = replace(file, sha256=str(sha256), git_sha1=None)
    if xet:
        file = replace(file, xet=Xet(xet, f"{root}/api/models/{repo}/xet-read-token/{commit}"))
    return file


def folders_above(name: str) -> list[str]:
    """Folders above a file in a repository: ``a`` and ``a/b`` for ``a/b/c``; none for a file at its top."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _check_names(names: Sequence[str], where: str) -> None:
    """Raise DrafthouseError for names that lead out of the folder or that collide with each other."""
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
            "hub-answer-malformed", f"a file called {name[:120]!r} in the listing", reason, _DO_NOT_TRUST, where
        )


# --- requests ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _HubApi:
    """Requests to the hub's API about one repository; temporary failures are retried."""

    root: str  # URL of the hub, without a slash at its end
    repo: str  # ORG/NAME
    revision: str  # commit, branch or ``unresolved``, for `commit` and for messages
    token: str | None  # None: requests without a token
    patience: Patience  # how often, and after which pauses, a request is retried
    deadline: Deadline | None = None  # for all requests together; None: each answer has its own time limit only

    def commit(self) -> str:
        """Commit that the revision points to now. Raises DrafthouseError, also if it is another than the named one."""
        suffix = "" if self.revision == UNRESOLVED else f"/revision/{quote(self.revision, safe='')}"
        commit = str(self.json(f"/api/models/{self.repo}{suffix}").get("sha"))
        is_wrong_commit = is_commit(self.revision) and commit != self.revision
        if is_commit(commit) and not is_wrong_commit:
            return commit
        found = f"{self.repo} at {self.revision} is commit {commit[:60]!r}"
        raise one_problem("hub-answer-malformed", found, "a commit of 40 hex digits", _DO_NOT_TRUST, self.root)

    def json(self, path: str) -> dict[str, Any]:
        """JSON object at a path of the API; {} if the answer is no object. Raises DrafthouseError."""
        data, _ = self._get_json(self.root + path)
        if not isinstance(data, dict):
            return {}
        return data

    def pages(self, path: str) -> list[dict[str, Any]]:
        """Entries of all pages of a listing. Every page is requested from the hub's host, whatever the answer names.

        Raises DrafthouseError, also for a listing that repeats a page or does not end.
        """
        entries: list[dict[str, Any]] = []
        url: str | None = self.root + path
        requested = set[str]()
        while url:
            if url in requested or len(requested) >= HUB_PAGES or len(entries) > HUB_FILES:
                raise self._malformed(f"a listing without an end ({len(requested)} pages, {len(entries):,} files)")
            requested.add(url)
            page, next_url = self._get_json(url)
            if isinstance(page, list):
                entries += [entry for entry in page if isinstance(entry, dict)]
            url = self._url_on_hub(url, next_url)
        return entries

    def _url_on_hub(self, url: str, link: str | None) -> str | None:
        """Absolute URL for ``link``, found in the answer of ``url``, with the hub's scheme and host; None for no link.

        Raises DrafthouseError for a link that is no URL.
        """
        if not link:
            return None
        hub = urlsplit(self.root)
        try:
            parts = urlsplit(urljoin(url, link))
        except ValueError as error:
            raise self._malformed(f"the address {link[:80]!r} of its next page") from error
        return urlunsplit((hub.scheme, hub.netloc, parts.path, parts.query, ""))

    def _malformed(self, what: str) -> DrafthouseError:
        """Error for an answer that the hub itself would not give; ``what`` describes it."""
        found = f"{what} for {self.repo}"
        return one_problem("hub-answer-malformed", found, "a listing as the hub gives it", _DO_NOT_TRUST, self.root)

    def _redirect_url(self, url: str, location: str) -> str:
        """URL that an answer redirects to. Raises DrafthouseError for another host, which must not get the token."""
        new_url = self._url_on_hub(url, location)
        if new_url is None or urlsplit(urljoin(url, location)).netloc != urlsplit(self.root).netloc:
            raise self._malformed(f"a redirect to {location[:80]!r}")
        return new_url

    def _get_json(self, url: str, redirects: int = 0) -> tuple[Any, str | None]:
        """JSON of the answer, and the URL of the next page or None; ``redirects``: number followed already.

        Raises DrafthouseError: at once for an answer that is too large, a refusal and huggingface_hub's offline mode;
        for all else when the tries or the time are used up.
        """
        import httpx2  # noqa: PLC0415 (what the hub's client speaks with)
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled  # noqa: PLC0415

        for failed in range(1, self.patience.tries + 1):
            retry_after_s: float | None = None
            try:
                return self._get_json_once(url, redirects)
            except TooMuch as error:
                raise self._malformed(str(error)) from error
            except HfHubHTTPError as error:
                problem = refusal(error, self.repo, self.revision, self.root)
                if problem:
                    raise DrafthouseError(problem) from error
                reason = f"HTTP {error.response.status_code}"
                retry_after_s = asked_to_wait(error.response.headers)
            except OfflineModeIsEnabled as error:
                raise DrafthouseError(_offline_problem(self.repo)) from error
            except ValueError:
                reason = "an answer that is not JSON"
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                reason = f"{type(error).__name__}: {str(error)[:200]}"
                if isinstance(error, httpx2.ConnectError) and failed >= _CONNECT_TRIES:
                    break
            pause = self.patience.pause(failed, retry_after_s)
            if pause is None or (self.deadline is not None and pause >= self.deadline.left()):
                break
            time.sleep(pause)
        if retry_after_s is not None and retry_after_s > self.patience.longest_wait_s:
            reason += f", retry after {retry_after_s:.0f} s"
        raise DrafthouseError(out_of_reach(self.repo, self.root, reason, failed))

    def _get_json_once(self, url: str, redirects: int) -> tuple[Any, str | None]:
        """Send the request once and follow redirects; JSON and next page as `_get_json`.

        Raises errors of huggingface_hub and httpx2, TooMuch, ValueError for an answer that is not JSON, and
        DrafthouseError for a redirect to another host.
        """
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # noqa: PLC0415

        # False, not None: with None the library sends a token stored on the box.
        headers = build_hf_headers(token=self.token or False, library_name="drafthouse")
        timeout_s = ANSWER_S if self.deadline is None else max(0.1, min(ANSWER_S, self.deadline.left()))
        # The timeout is for each read. The deadline ends an answer that comes byte by byte.
        answer = asked_once(url, headers, timeout_s, self.deadline or Deadline(2 * ANSWER_S))
        if answer.has_redirect_location and redirects < _MAX_REDIRECTS:
            return self._get_json(self._redirect_url(url, answer.headers["location"]), redirects + 1)
        hf_raise_for_status(answer)
        if answer.content.count(b",") > HUB_ANSWER_COMMAS:
            raise TooMuch(f"an answer of more than {HUB_ANSWER_COMMAS:,} values")
        return json_of(text_of(answer.content)), answer.links.get("next", {}).get("url")


def asked_once(url: str, headers: Mapping[str, str], timeout_s: float, deadline: Deadline) -> httpx2.Response:
    """Send one GET and return the whole answer, even a redirect. Raises TooMuch and errors of httpx2.

    ``timeout_s`` limits each wait for bytes, ``deadline`` the whole. Compressed answers are refused: a few bytes could
    unpack to more than the limit.
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
    """Problem for a hub that did not answer ``tries`` times in a row."""
    times = f", {tries} times in a row" if tries > 1 else ""
    return Problem(
        "hub-unreachable",
        f"no answer about {repo} from {root}: {reason}{times}",
        "access to the Hugging Face hub",
        "check the network (HF_ENDPOINT names a mirror), then run again: it resumes",
        repo,
    )


def _offline_problem(repo: str) -> Problem:
    """Problem for huggingface_hub's own offline mode, which the environment variable sets."""
    return Problem(
        "weights-not-offline",
        f"{repo} must be downloaded, but HF_HUB_OFFLINE is set",
        "access to the hub, or the weights in place",
        "unset it, or put the weights in place",
        repo,
    )


def refusal(error: Any, repo: str, revision: str, root: str) -> Problem | None:
    """Problem for an HfHubHTTPError that a retry cannot solve; None if a retry may help.

    The specific refusals come first, then any status from 400 to 499 that is not known to pass.
    """
    from huggingface_hub.errors import (  # noqa: PLC0415
        DisabledRepoError,
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = error.response.status_code
    reason = str(getattr(error, "server_message", "") or "")[:200]
    if isinstance(error, GatedRepoError):
        return _gated_problem(repo, root)
    if isinstance(error, RevisionNotFoundError):
        return _no_revision_problem(repo, revision)
    if status == 401 and "credentials" in str(error).lower():
        return _bad_token_problem(repo, reason)
    if isinstance(error, RepositoryNotFoundError):
        return _no_repository_problem(repo)
    if isinstance(error, DisabledRepoError):
        found = f"{repo} is disabled on the hub"
        return Problem("hub-refused", found, "a readable one", "choose other weights", repo)
    if not 400 <= status < 500 or status in PASSING:
        return None
    found = f"{root} refuses {repo} at {revision}: HTTP {status} {reason}".rstrip()
    do = "correct source.hub, or give a token that may read it (HF_TOKEN)"
    return Problem("hub-refused", found, "an answer", do, repo)


def _gated_problem(repo: str, root: str) -> Problem:
    """Problem for a repository whose licence must be accepted before its files can be read."""
    return Problem(
        "hub-gated",
        f"{repo} is gated, and the token (if any) has no access to it",
        "an account that accepted its licence",
        f"accept it at {root}/{repo}, then export HF_TOKEN=... with a token of that account and run again"
        " (a fine-grained token also needs 'Read access to contents of all public gated repos')",
        repo,
    )


def _no_revision_problem(repo: str, revision: str) -> Problem:
    """Problem for a revision that a readable repository does not have."""
    return Problem(
        "no-such-revision",
        f"could not download {repo} at {revision}: the repository exists, the revision does not",
        "a commit, a branch or a tag of it",
        "correct source.hub.revision, then run again",
        repo,
    )


def _bad_token_problem(repo: str, reason: str) -> Problem:
    """Problem for a token that the hub refuses; ``reason``: the hub's own words, or ''."""
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


def _no_repository_problem(repo: str) -> Problem:
    """Problem for a repository that does not exist, or that the token may not see: the hub answers the same."""
    return Problem(
        "no-such-repository",
        f"no repository {repo} for this token",
        "one that it can read",
        "correct source.hub.repo, or give HF_TOKEN",
        repo,
    )
