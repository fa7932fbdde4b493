"""Collect what the templates of `templates/export` need for an arm of a resolved profile, as an `Order`.

An arm is one of the servers that the benchmark compares: baseline or speculative.
"""

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
from ..profiles.exposure import NAMED, exposed, routes_text
from ..profiles.render import variable
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile, WeightItem
from .evidence import ReportFacts

_LONGEST_NAME = 41  # characters: dstack's limit; that of Kubernetes is 63
_GUESSED_RATE = 1.0  # requests/s per replica if no load was measured
_GIB = 2**30


@dataclass(frozen=True)
class Order:
    """An arm of a resolved profile as the templates read it."""

    profile: ResolvedProfile
    name: str  # of the service, as all tools accept it
    header: list[str]  # sentences of the comment at the top of the file
    open_paths: str  # a sentence on the paths that answer without the key; '' if there are none
    image: str  # its name, with a tag or a digest
    image_note: str  # the origin of the image's name
    command: list[str]  # as in `drafthouse render`, but listening on all addresses of the container
    flags: list[Flag]
    keyed: bool  # the engine's API key protects the port
    reads_key_file: bool  # the engine reads its key from a file, not from a variable
    key_variable: str  # the environment variable with the key; Drafthouse's own if ``reads_key_file``
    environment: Mapping[str, str]
    ulimits: Mapping[str, int]
    labels: Mapping[str, str]
    downloads: list[list[str]]  # commands that fetch the weights at their revision
    completion: str  # JSON body of the smallest request that makes the engine compute
    needs: int  # bytes of memory per GPU
    volume_gib: int  # GiB of the volume for the weights
    replicas: tuple[int, int]  # minimum and maximum
    rate: float  # requests/s per replica above which the tool adds a replica
    scaling: str  # a sentence on the origin of ``rate``

    @property
    def single_files(self) -> bool:
        """True if any of the weights is a single file."""
        return any(words[0] == "fetch" for words in self.downloads)

    @property
    def argv(self) -> list[str]:
        """The command and its flags as a list of arguments."""
        argv = list(self.command)
        for flag in self.flags:
            argv += flag
        return argv


def order_of(
    profile: ResolvedProfile,
    arm: str,
    *,
    keyed: bool = True,
    evidence: ReportFacts | None = None,
    replicas: tuple[int, int] = (1, 1),
    image: str | None = None,
) -> Order:
    """The order of an arm. Raises DrafthouseError with all reasons why no other container can run it.

    ``keyed``: the engine's API key protects the port. ``evidence``: the report that proves the export, None without
    one. ``replicas``: minimum and maximum. ``image``: the one named by the user, None for the profile's.
    """
    rendered = profile["arms"][arm]
    engine = profile["engine"]
    _check(profile, rendered, keyed, image)
    container = rendered["container"]
    assert container
    image_name, image_note = _image(container["image"], profile.get("image_digest"), evidence, image)
    reads_key_file = engine["has_key"] and not engine["key_environment"]
    command, flags = _command(rendered, profile["key_file"], keyed, by_script=keyed and reads_key_file)
    fit = rendered["fit"]
    needs = fit["weights"] + fit["draft"] + fit["overhead"] + fit["kv_needed"]
    # ASCII, so that it has as many bytes as characters; `$` is escaped below, since tools would expand it.
    completion = {"model": profile["target"]["served_name"], "prompt": "1, 2, 3,", "max_tokens": 1, "temperature": 0}
    rate = evidence.rates.get(arm, 0.0) if evidence else 0.0
    environment = {**rendered["environment"], **container["environment"]}
    for key in environment:
        variable(key)  # raises for a name that no shell accepts
    weight_bytes = sum(item["bytes"] for item in profile["weights"])
    return Order(
        profile=profile,
        name=_name(profile["profile"], arm),
        header=_header(profile, arm, evidence, needs, image_note),
        open_paths=_open_paths(profile),
        image=image_name,
        image_note=image_note,
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
        volume_gib=1 + round(1.1 * weight_bytes / _GIB),  # 10 % more than the weights
        replicas=replicas,
        rate=rate or _GUESSED_RATE,
        scaling=_scaling(replicas, rate),
    )


def _open_paths(profile: ResolvedProfile) -> str:
    """The sentence on the paths that answer without the key and do harm; '' if there are none."""
    routes = profile["open_paths"]["routes"]
    unguarded = exposed((route for route in routes if route["open"]), NAMED)
    if not unguarded:
        return ""
    return f"Answers without the key: {routes_text(unguarded)}. Expose only /v1 to others."


def _check(profile: ResolvedProfile, arm: ResolvedArm, keyed: bool, image: str | None) -> None:
    """Raise DrafthouseError with all reasons why no other container can run the arm; arguments as for `order_of`."""
    name = profile["profile"]
    engine = profile["engine"]
    problems: list[Problem] = []

    def refuse(found: str, needed: str, do: str) -> None:
        problems.append(Problem("export-unsupported", found, needed, do, name))

    if arm["container"] is None:
        refuse(f"no image of {engine['name']} for this profile", "an engine in an image", "export a profile for a GPU")
    if profile["derived_image"] and not image:
        do = f"build and push build/{name}/Containerfile (drafthouse render {name}), then --image NAME@sha256:..."
        refuse("an image that is built on the box", "an image in a registry", do)
    if keyed and not engine["has_key"]:
        found = f"{engine['name']} does not ask for a key"
        do = "export to dstack, which asks for its own"
        problems.append(Problem("export-unguarded", found, "a guarded port", do, name))
    if arm["config"]:
        found = f"{engine['name']} reads its settings from a file beside its script"
        refuse(found, "arguments only", "serve it with make")
    local = [item["name"] for item in profile["weights"] if item["source"] != "hub"]
    if local:
        found = f"{', '.join(local)}: not from the Hub"
        refuse(found, "weights that a container can fetch", "upload them, and add a model")
    if problems:
        raise DrafthouseError(problems)


def _name(profile: str, arm: str) -> str:
    """A name that all tools accept, such as `rtx6000-qwen-eagle3-spec`."""
    name = re.sub(r"[^a-z0-9]+", "-", profile.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"llm-{name}"
    return f"{name[: _LONGEST_NAME - 5].rstrip('-')}-{arm[:4]}"  # 5 characters for `-spec` or `-base`


def _labels(profile: ResolvedProfile, arm: str, evidence: ReportFacts | None) -> dict[str, str]:
    """Labels or annotations with the origin of the file, for programs."""
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


def _image(default: str, pinned: str | None, evidence: ReportFacts | None, chosen: str | None) -> tuple[str, str]:
    """The image's name and a note on its origin. Raises DrafthouseError if it is not an image name.

    In this order: the ``chosen`` one; ``default`` with the digest ``pinned`` at its first use, with the digest in a
    report of this clone, or by its tag.
    """
    if chosen:
        name = chosen
        note = "named with --image"
        if "@" not in chosen:
            note += ", by a tag, which can move"
    elif pinned:
        name = f"{default}@{pinned}"
        note = "by the digest in pins.json"
    elif evidence and evidence.digest and evidence.in_clone:
        name = f"{default}@{evidence.digest}"
        note = f"by the digest in this clone's report {evidence.name}; pins.json has none"
    else:
        name = default
        note = "by tag, which can move: no digest is pinned for it yet (pins.json)"
        if evidence and evidence.digest:
            note += f". The report, which is not of this clone, has {evidence.digest}; --image NAME@DIGEST takes it"
    if not IMAGE.fits(name):
        raise one_problem("wrong-format", repr(name), IMAGE.needed, "correct the image's name or digest", "image")
    return name, note


def _command(rendered: ResolvedArm, key_file: str, keyed: bool, by_script: bool) -> tuple[list[str], list[Flag]]:
    """The command of an arm and its flags, with the container's listen address.

    ``by_script``: the engine reads its key from a file. If it has no flag for that file, its start script reads it, and
    becomes the command. Not ``keyed``: without the flag for the key.
    """
    container = rendered["container"]
    assert container
    listen: Flag = container["command"]
    flags: list[Flag] = []
    for flag in rendered["flags"]:
        flags.append(listen if flag[0] == listen[0] else flag)
    if by_script and not any(key_file in flag for flag in flags):
        scripts = {file["path"]: file["content"] for file in rendered["files"]}
        return ["/bin/bash", "-c", scripts["serve.sh"], "serve.sh"], [listen]
    if not keyed:
        flags = [flag for flag in flags if key_file not in flag]
    return rendered["command"], flags


def _header(profile: ResolvedProfile, arm: str, evidence: ReportFacts | None, needs: int, image_note: str) -> list[str]:
    """Sentences of the comment at the top: origin of the arguments, proof, memory per GPU, image.

    ``needs``: bytes of memory per GPU.
    """
    name = profile["profile"]
    engine = profile["engine"]
    hardware = profile["hardware"]
    fit = profile["arms"][arm]["fit"]
    unproven = "Proof: none. No kept report has these commands; measure them first."
    unpinned = [item["name"] for item in profile["weights"] if not is_commit(_revision(item))]
    sentences = [
        f"Exported by Drafthouse from the profile {name}, {arm} arm: {profile['title']}.",
        f"Arguments: resolved for {engine['name']} {engine['version']} from the profile and the catalogue;"
        f" drafthouse render {name} shows both arms.",
        evidence.proof if evidence else unproven,
        f"GPU: {count(hardware['devices'], 'GPU')} ({hardware['name']}). Each needs {shown_bytes(needs)} (weights"
        f" {shown_bytes(fit['weights'])}, draft {shown_bytes(fit['draft'])}, engine {shown_bytes(fit['overhead'])},"
        f" KV cache for {fit['context']} tokens {shown_bytes(fit['kv_needed'])}) of {shown_bytes(fit['memory'])}.",
        f"Image: {image_note}.",
    ]
    if unpinned:
        sentences.append(f"Not pinned to a commit: {', '.join(unpinned)}.")
    return sentences


def _scaling(replicas: tuple[int, int], rate: float) -> str:
    """The comment's sentence about scaling; ``rate`` is 0 if no load was measured."""
    minimum, maximum = replicas
    if minimum == maximum:
        return "Replicas: fixed, without autoscaling."
    if not rate:
        return f"Scaling at {_GUESSED_RATE:g} request/s per replica is a guess: no load was measured."
    return f"Scaling at {rate:g} requests/s per replica: what one box reached in the report where it still pays."


def _revision(item: WeightItem) -> str:
    """The pinned commit of a repository, or the requested revision if none is pinned."""
    return item.get("pinned") or str(item["details"]["revision"])


def _download(item: WeightItem) -> list[str]:
    """The command that fetches weights: `fetch` of `downloads.sh.j2` for a single file, else `hf download`."""
    details = item["details"]
    path = item["path"]
    revision = _revision(item)
    allow = list(map(str, details.get("allow", ())))
    if len(allow) == 1 and path.endswith(f"/{allow[0]}"):
        return ["fetch", path, f"https://huggingface.co/{details['repo']}/resolve/{revision}/{allow[0]}"]
    command = ["hf", "download", details["repo"], "--revision", revision, "--local-dir", path]
    for pattern in allow:
        command += ["--include", pattern]
    for pattern in details.get("ignore", ()):
        command += ["--exclude", str(pattern)]
    return command
