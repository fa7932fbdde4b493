"""What is exported: one arm of a resolved profile, in the words that every target needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..core.documents import Json
from ..core.format import count, shown_bytes
from ..core.pins import is_commit
from ..core.shell import Flag, compact_json, shell_words
from ..profiles.exposure import NAMED, exposed, told
from ..profiles.render import comment_lines
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile, WeightItem
from .evidence import Evidence

#: Under which name a target's secret store has the key, and the variable that holds it where a tool hands out no files.
SECRET, SECRET_KEY, VARIABLE = "drafthouse-api-key", "api-key", "DRAFTHOUSE_API_KEY"
#: For reading a gated repository; each target takes it where it is there.
TOKEN_SECRET, TOKEN_KEY, TOKEN = "huggingface", "token", "HF_TOKEN"
NOT_MEASURED = "not measured"
#: At how many requests/s a replica is added, where no load was measured.
GUESS = 1.0
#: Shared memory in GiB for engines that have the host's on a box of ours, and requests of a pod that nobody measured.
SHARED_MEMORY_GIB, CPUS, MEMORY_GIB = 16, 4, 16
_LONGEST_NAME = 41  # characters, dstack's limit; Kubernetes takes 63
_GIB = 2**30


@dataclass(frozen=True)
class Order:
    """One arm of a resolved profile, to be exported; ``replicas``: at least and at most."""

    profile: ResolvedProfile
    arm: str
    image: str
    evidence: Evidence | None = None
    replicas: tuple[int, int] = (1, 1)

    @property
    def built(self) -> ResolvedArm:
        """The arm."""
        return self.profile["arms"][self.arm]

    @property
    def other(self) -> Order:
        """The other arm, as it would be exported."""
        arm = "baseline" if self.arm == "speculative" else "speculative"
        return Order(self.profile, arm, self.image, self.evidence, self.replicas)

    @property
    def name(self) -> str:
        """A name that every tool takes: `rtx6000-qwen-eagle3-spec`."""
        name = re.sub(r"[^a-z0-9]+", "-", self.profile["profile"].lower()).strip("-")
        return f"{name if name[:1].isalpha() else f'llm-{name}'}"[: _LONGEST_NAME - 5].rstrip("-") + f"-{self.arm[:4]}"

    @property
    def port(self) -> int:
        """The port on which the engine listens."""
        return self.profile["site"]["port"]

    @property
    def models(self) -> str:
        """Where the weights' volume is mounted."""
        return self.profile["site"]["models_dir"]

    @property
    def key_variable(self) -> str:
        """The variable in which the engine looks for its key; ours where it reads a file."""
        return self.profile["engine"]["key_environment"] or VARIABLE

    @property
    def reads_key_file(self) -> bool:
        """Whether the engine has its key from a file."""
        return self.profile["engine"]["has_key"] and not self.profile["engine"]["key_environment"]

    def argv(self, *, keyed: bool = True) -> list[str]:
        """Return the command that `drafthouse render` shows, listening on every address of its container.

        ``keyed`` False leaves out how the engine is told its key, for a tool that asks for its own before every path.
        An engine that is told inside its process has its whole script as an argument.
        """
        container, key_file = self.built["container"], self.profile["key_file"]
        assert container  # `targets.order_of` refuses what has no image
        host = container["command"]
        flags: list[Flag] = [host if flag[0] == host[0] else flag for flag in self.built["flags"]]
        by_flag = any(key_file in flag for flag in flags)
        if keyed and self.reads_key_file and not by_flag:
            (script,) = (file["content"] for file in self.built["files"] if file["path"] == "serve.sh")
            return ["/bin/bash", "-c", script, "serve.sh", *host]
        if not keyed:
            flags = [flag for flag in flags if key_file not in flag]
        return [*self.built["command"], *(word for flag in flags for word in flag)]

    @property
    def environment(self) -> dict[str, str]:
        """The arm's variables, and what its container needs."""
        container = self.built["container"]
        return {**self.built["environment"], **(container["environment"] if container else {})}

    @property
    def labels(self) -> dict[str, str]:
        """What the file says of itself, for programs."""
        engine, evidence = self.profile["engine"], self.evidence
        return {
            "drafthouse.profile": self.profile["profile"],
            "drafthouse.arm": self.arm,
            "drafthouse.engine": f"{engine['id']} {engine['version']}",
            "drafthouse.verdict": evidence.word if evidence else NOT_MEASURED,
            "drafthouse.report": f"sha256:{evidence.sha256}" if evidence else "none",
        }

    @property
    def rate(self) -> float | None:
        """The requests/s that one box was measured to manage; None where no load was measured."""
        return self.evidence.rates.get(self.arm) if self.evidence else None

    @property
    def scaling(self) -> str:
        """What the header says of the rate at which replicas are added."""
        if self.replicas[0] == self.replicas[1]:
            return "Replicas: fixed, without autoscaling."
        if self.rate is None:
            return f"Scaling at {GUESS:g} request/s per replica is a guess: no load was measured."
        return (
            f"Scaling at {self.rate:g} requests/s per replica: what one box reached in the report where it still pays."
        )

    @property
    def disk_gb(self) -> int:
        """Disk for image, weights and caches, in GB."""
        return self.profile["rental"]["disk_gb"]

    @property
    def volume_gib(self) -> int:
        """The weights' volume, with a tenth to spare."""
        return 1 + round(1.1 * sum(item["bytes"] for item in self.profile["weights"]) / _GIB)

    @property
    def needs(self) -> int:
        """What the arm needs of each GPU, in bytes: weights, draft, the engine's own, the declared context."""
        fit = self.built["fit"]
        return fit["weights"] + fit["draft"] + fit["overhead"] + fit["kv_needed"]

    @property
    def completion(self) -> dict[str, Json]:
        """The smallest request that makes the engine compute."""
        return {"model": self.profile["target"]["served_name"], "prompt": "1, 2, 3,", "max_tokens": 1, "temperature": 0}

    def probe(self, key: str) -> list[str]:
        """Return a command that ends with 0 once the engine completes a text.

        ``key``: how the container's shell reads the key. There may be no curl in the image, and bash starts the engine.
        The key goes through a builtin of the shell: no list of processes shows it.
        """
        return ["/bin/bash", "-c", _PROBE.format(port=self.port, key=key, body=compact_json(self.completion))]

    def downloads(self) -> str:
        """Return a script that puts the weights at their revision, and does nothing once they are there."""
        lines = ["set -euo pipefail", "export HF_HUB_OFFLINE=0"]
        for item in self.profile["weights"]:
            details, path, revision = item["details"], item["path"], revision_of(item)
            allow = [str(name) for name in details.get("allow", ())]
            if len(allow) == 1 and path.endswith(f"/{allow[0]}"):
                url = f"https://huggingface.co/{details['repo']}/resolve/{revision}/{allow[0]}"
                lines += [] if FETCH in lines else [FETCH]
                lines.append(shell_words(["fetch", path, url]))
            else:
                words = ["hf", "download", details["repo"], "--revision", revision, "--local-dir", path]
                words += [word for name in allow for word in ("--include", name)]
                lines.append(
                    shell_words(words + [word for name in details.get("ignore", ()) for word in ("--exclude", name)])
                )
        return "\n".join(lines) + "\n"

    def header(self, tool: str, *notes: str) -> list[str]:
        """Return the lines of the comment on top: where the arguments come from, how it was proven, what is not."""
        profile, engine, fit, evidence = self.profile, self.profile["engine"], self.built["fit"], self.evidence
        title = f"{profile['profile']}, {self.arm} arm, for {tool}: {profile['title']}."
        said = [
            f"Exported by Drafthouse from the profile {title}",
            f"Arguments: resolved for {engine['name']} {engine['version']} from the profile and the catalogue;"
            f" drafthouse render {profile['profile']} shows both arms. Check a changed file with"
            f" drafthouse export {profile['profile']} --to TARGET --check FILE.",
            evidence.told if evidence else "Proof: none. No kept report has these commands; measure them first.",
            f"GPU: {count(profile['hardware']['devices'], 'GPU')} ({profile['hardware']['name']}). Each needs"
            f" {shown_bytes(self.needs)} (weights {shown_bytes(fit['weights'])}, draft {shown_bytes(fit['draft'])},"
            f" engine {shown_bytes(fit['overhead'])}, KV cache for {fit['context']} tokens"
            f" {shown_bytes(fit['kv_needed'])}) of {shown_bytes(fit['memory'])}.",
            "Image: by digest."
            if "@sha256:" in self.image
            else "Image: by tag, which can move: no digest is pinned for it yet (pins.json).",
            *notes,
            "Drafthouse has not applied this file: docs/export.md lists what was parsed, and by which parser.",
        ]
        if loose := [item["name"] for item in profile["weights"] if not is_commit(revision_of(item))]:
            said.append(f"Not pinned to a commit: {', '.join(loose)}.")
        return [comment_lines(text) for text in said if text]

    @property
    def open_paths(self) -> str:
        """What the engine's key does not guard, in words for the header."""
        routes = exposed((route for route in self.profile["open_paths"]["routes"] if route["open"]), NAMED)
        return f"Answers without the key: {told(routes)}. Expose only /v1 to others." if routes else ""


_PROBE = (
    "body='{body}' && exec 3<>/dev/tcp/127.0.0.1/{port} && "
    "printf 'POST /v1/completions HTTP/1.0\\r\\nContent-Type: application/json\\r\\nAuthorization: Bearer %s\\r\\n"
    'Content-Length: %s\\r\\n\\r\\n%s\' "{key}" "${{#body}}" "$body" >&3'
    " && read -r line <&3 && [[ $line == *' 200 '* ]]"
)


#: For one file, where the engine's image has curl and no Python. The token goes through a pipe: no list of processes
#: shows it.
FETCH = (
    'fetch() { [ -f "$1" ] || { mkdir -p "${1%/*}" && curl -fL --retry 5 -C - --header'
    f" @<(printf '%s\\n' \"${{{TOKEN}:+Authorization: Bearer ${TOKEN}}}\")"
    ' -o "$1.part" "$2" && mv "$1.part" "$1"; }; }'
)


def revision_of(item: WeightItem) -> str:
    """Return the commit of a repository; what was asked for where it is not pinned."""
    return item.get("pinned") or str(item["details"]["revision"])
