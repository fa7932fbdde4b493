"""What is exported: one arm of a resolved profile, in the words that the templates need."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.format import count, shown_bytes
from ..core.forms import IMAGE
from ..core.pins import is_commit
from ..core.shell import Flag
from ..profiles.exposure import NAMED, exposed, told
from ..profiles.render import variable
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile, WeightItem
from .evidence import Evidence

_LONGEST_NAME = 41  # characters, dstack's limit; Kubernetes takes 63
_GUESSED_RATE = 1.0  # requests/s, where no load was measured
_GIB = 2**30


@dataclass(frozen=True)
class Order:
    """One arm of a resolved profile, to be exported.

    ``header``: sentences for the comment on top. ``command`` and ``flags``: what `drafthouse
    render` shows, listening on every address of the container. ``keyed``: whether the engine's own
    key guards the port. ``key_variable``: where the engine looks for its key; ours where it reads a
    file. ``downloads``: the commands that fetch the weights at their revision. ``completion``: the
    body of the smallest request that makes the engine compute. ``needs``: bytes of each GPU.
    ``replicas``: at least and at most. ``rate``: the requests/s of a replica at which another is
    added, of which ``scaling`` says where it comes from.
    """

    profile: ResolvedProfile
    name: str
    header: list[str]
    open_paths: str
    image: str
    image_note: str
    command: list[str]
    flags: list[Flag]
    keyed: bool
    reads_key_file: bool
    key_variable: str
    environment: Mapping[str, str]
    ulimits: Mapping[str, int]
    labels: Mapping[str, str]
    downloads: list[list[str]]
    completion: str
    needs: int
    volume_gib: int
    replicas: tuple[int, int]
    rate: float
    scaling: str

    @property
    def single_files(self) -> bool:
        """Whether any of the weights is a single file."""
        return any(words[0] == "fetch" for words in self.downloads)

    @property
    def argv(self) -> list[str]:
        """The whole command."""
        words = list(self.command)
        for flag in self.flags:
            words += flag
        return words


def order_of(
    profile: ResolvedProfile,
    arm: str,
    *,
    keyed: bool = True,
    evidence: Evidence | None = None,
    replicas: tuple[int, int] = (1, 1),
    image: str | None = None,
) -> Order:
    """What is exported. Raises DrafthouseError with all that no container elsewhere could have."""
    built, engine = profile["arms"][arm], profile["engine"]
    _check(profile, built, keyed, image)
    container = built["container"]
    assert container
    name, note = _image(container["image"], profile.get("image_digest"), evidence, image)
    reads_key_file = engine["has_key"] and not engine["key_environment"]
    command, flags = _command(built, profile["key_file"], keyed, keyed and reads_key_file)
    fit, routes = built["fit"], profile["open_paths"]["routes"]
    needs = fit["weights"] + fit["draft"] + fit["overhead"] + fit["kv_needed"]
    unguarded = exposed((route for route in routes if route["open"]), NAMED)
    # JSON in ASCII, as long in bytes as in characters, and without a `$` of a tool's variable.
    completion = {"model": profile["target"]["served_name"], "prompt": "1, 2, 3,", "max_tokens": 1, "temperature": 0}
    rate = evidence.rates.get(arm, 0.0) if evidence else 0.0
    open_paths = ""
    if unguarded:
        open_paths = f"Answers without the key: {told(unguarded)}. Expose only /v1 to others."
    environment = {**built["environment"], **container["environment"]}
    for key in environment:
        variable(key)  # or it is refused
    weight_bytes = sum(item["bytes"] for item in profile["weights"])
    return Order(
        profile=profile,
        name=_name(profile["profile"], arm),
        header=_header(profile, arm, evidence, needs, note),
        open_paths=open_paths,
        image=name,
        image_note=note,
        command=command,
        flags=flags,
        keyed=keyed,
        reads_key_file=reads_key_file,
        key_variable=engine["key_environment"] or "DRAFTHOUSE_API_KEY",
        environment=environment,
        ulimits=container["ulimits"],
        labels=_labels(profile, arm, evidence),
        downloads=[_download(item) for item in profile["weights"]],
        completion=json.dumps(completion).replace("$", "\\u0024"),
        needs=needs,
        volume_gib=1 + round(1.1 * weight_bytes / _GIB),  # with a tenth to spare
        replicas=replicas,
        rate=rate or _GUESSED_RATE,
        scaling=_scaling(replicas, rate),
    )


def _check(profile: ResolvedProfile, built: ResolvedArm, keyed: bool, image: str | None) -> None:
    """Raise DrafthouseError with everything that no container elsewhere could have."""
    where, engine = profile["profile"], profile["engine"]
    problems: list[Problem] = []

    def lacks(found: str, needed: str, do: str) -> None:
        problems.append(Problem("export-unsupported", found, needed, do, where))

    if built["container"] is None:
        lacks(f"no image of {engine['name']} for this profile", "an engine in an image", "export a profile for a GPU")
    if profile["derived_image"] and not image:
        do = f"build and push build/{where}/Containerfile (drafthouse render {where}), then --image NAME@sha256:..."
        lacks("an image that is built on the box", "an image in a registry", do)
    if keyed and not engine["has_key"]:
        found, do = f"{engine['name']} does not ask for a key", "export to dstack, which asks for its own"
        problems.append(Problem("export-unguarded", found, "a guarded port", do, where))
    if built["config"]:
        found = f"{engine['name']} reads its settings from a file beside its script"
        lacks(found, "arguments only", "serve it with make")
    local = [item["name"] for item in profile["weights"] if item["source"] != "hub"]
    if local:
        found = f"{', '.join(local)}: not from the Hub"
        lacks(found, "weights that a container can fetch", "upload them, and add a model")
    if problems:
        raise DrafthouseError(problems)


def _name(profile: str, arm: str) -> str:
    """A name that every tool takes: `rtx6000-qwen-eagle3-spec`."""
    name = re.sub(r"[^a-z0-9]+", "-", profile.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"llm-{name}"
    return f"{name[: _LONGEST_NAME - 5].rstrip('-')}-{arm[:4]}"


def _labels(profile: ResolvedProfile, arm: str, evidence: Evidence | None) -> dict[str, str]:
    """What the file says of itself, for programs."""
    engine = profile["engine"]
    labels = {
        "drafthouse.profile": profile["profile"],
        "drafthouse.arm": arm,
        "drafthouse.engine": f"{engine['id']} {engine['version']}",
        "drafthouse.verdict": "not measured",
        "drafthouse.report": "none",
    }
    if evidence:
        labels |= {"drafthouse.verdict": evidence.word, "drafthouse.report": f"sha256:{evidence.sha256}"}
    return labels


def _image(catalogued: str, pinned: str | None, evidence: Evidence | None, given: str | None) -> tuple[str, str]:
    """The image's name, and where it comes from. Raises DrafthouseError for another text."""
    if given:
        name, note = given, "named with --image"
        if "@" not in given:
            note += ", by a tag, which can move"
    elif pinned:
        name, note = f"{catalogued}@{pinned}", "by the digest in pins.json"
    elif evidence and evidence.digest and evidence.own:
        name = f"{catalogued}@{evidence.digest}"
        note = f"by the digest in this clone's report {evidence.name}; pins.json has none"
    else:
        name, note = catalogued, "by tag, which can move: no digest is pinned for it yet (pins.json)"
        if evidence and evidence.digest:
            note += f". The report, which is not of this clone, has {evidence.digest}; --image NAME@DIGEST takes it"
    if not IMAGE.fits(name):
        raise one_problem("wrong-format", repr(name), IMAGE.needed, "correct the image's name or digest", "image")
    return name, note


def _command(built: ResolvedArm, key_file: str, keyed: bool, by_file: bool) -> tuple[list[str], list[Flag]]:
    """The command of an arm and its flags; its script where the key is told inside the process."""
    container = built["container"]
    assert container
    host: Flag = container["command"]
    flags: list[Flag] = []
    for flag in built["flags"]:
        flags.append(host if flag[0] == host[0] else flag)
    if by_file and not any(key_file in flag for flag in flags):
        scripts = {file["path"]: file["content"] for file in built["files"]}
        return ["/bin/bash", "-c", scripts["serve.sh"], "serve.sh"], [host]
    if not keyed:
        flags = [flag for flag in flags if key_file not in flag]
    return built["command"], flags


def _header(profile: ResolvedProfile, arm: str, evidence: Evidence | None, needs: int, image_note: str) -> list[str]:
    """Sentences for the comment on top: where the arguments come from, and what proves them."""
    name, engine, hardware, fit = (
        profile["profile"],
        profile["engine"],
        profile["hardware"],
        profile["arms"][arm]["fit"],
    )
    unproven = "Proof: none. No kept report has these commands; measure them first."
    moving = [item["name"] for item in profile["weights"] if not is_commit(_revision(item))]
    sentences = [
        f"Exported by Drafthouse from the profile {name}, {arm} arm: {profile['title']}.",
        f"Arguments: resolved for {engine['name']} {engine['version']} from the profile and the catalogue;"
        f" drafthouse render {name} shows both arms.",
        evidence.told if evidence else unproven,
        f"GPU: {count(hardware['devices'], 'GPU')} ({hardware['name']}). Each needs {shown_bytes(needs)} (weights"
        f" {shown_bytes(fit['weights'])}, draft {shown_bytes(fit['draft'])}, engine {shown_bytes(fit['overhead'])},"
        f" KV cache for {fit['context']} tokens {shown_bytes(fit['kv_needed'])}) of {shown_bytes(fit['memory'])}.",
        f"Image: {image_note}.",
    ]
    if moving:
        sentences.append(f"Not pinned to a commit: {', '.join(moving)}.")
    return sentences


def _scaling(replicas: tuple[int, int], rate: float) -> str:
    """What the comment says of the scaling; ``rate`` is 0 where no load was measured."""
    if replicas[0] == replicas[1]:
        return "Replicas: fixed, without autoscaling."
    if not rate:
        return f"Scaling at {_GUESSED_RATE:g} request/s per replica is a guess: no load was measured."
    return f"Scaling at {rate:g} requests/s per replica: what one box reached in the report where it still pays."


def _revision(item: WeightItem) -> str:
    """The commit of a repository; what was asked for where it is not pinned."""
    return item.get("pinned") or str(item["details"]["revision"])


def _download(item: WeightItem) -> list[str]:
    """The command that fetches an item: `fetch` of `downloads.sh.j2`, or `hf` for a folder."""
    details, path, revision = item["details"], item["path"], _revision(item)
    allow = [str(name) for name in details.get("allow", ())]
    if len(allow) == 1 and path.endswith(f"/{allow[0]}"):
        return ["fetch", path, f"https://huggingface.co/{details['repo']}/resolve/{revision}/{allow[0]}"]
    words = ["hf", "download", details["repo"], "--revision", revision, "--local-dir", path]
    for pattern in allow:
        words += ["--include", pattern]
    for pattern in details.get("ignore", ()):
        words += ["--exclude", str(pattern)]
    return words
