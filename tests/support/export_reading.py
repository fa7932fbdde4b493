"""Exported files as their tools read them, with variables filled in: what is started of them.

What the tools do to a text is written here after their sources: Compose's template syntax
(compose-go), Kubernetes' `$(NAME)` (k8s.io/kubernetes/third_party/forked/golang/expansion),
dstack's interpolator and SkyPilot's `_fill_in_env_vars` (of the versions in `tests/fleet/locks`),
Quadlet's `unitfile.go` and `split.go`, and systemd's specifiers and `$` in commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

KEY = "the-key"


@dataclass
class Started:
    """What a tool starts of a file.

    ``start``: the engine's command in the container, with its ``environment``. ``downloads``: the
    command that fetches the weights. ``probe``: the command of the readiness probe, or None;
    ``body``: what the tool itself posts, or None. ``paths``: the path of every value in the file.
    """

    start: list[str]
    environment: dict[str, str]
    downloads: list[str]
    image: str
    labels: dict[str, str]
    probe: list[str] | None = None
    body: str | None = None
    paths: set[str] = field(default_factory=set)


def paths_of(data: Any, path: str = "") -> set[str]:
    """The path of every value, without its place in a list of words."""
    if isinstance(data, dict):
        return {found for key, value in data.items() for found in paths_of(value, f"{path}/{key}")}
    if isinstance(data, list):
        return {found for value in data for found in paths_of(value, f"{path}/-")}
    return {f"{path} {type(data).__name__}"}


def applied(change: Callable[[str], str], data: Any) -> Any:
    """Data of YAML with every text in it changed."""
    if isinstance(data, dict):
        return {key: applied(change, value) for key, value in data.items()}
    if isinstance(data, list):
        return [applied(change, value) for value in data]
    return change(data) if isinstance(data, str) else data


# --- what the tools fill in


def compose_filled(text: str) -> str:
    """Compose: `$$` is a dollar, and any other dollar begins a variable."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found[0] in ("${HF_TOKEN:-}", "${DRAFTHOUSE_API_KEY_FILE:-./api_key}"):
            return ""
        raise AssertionError(f"Compose would fill in {found[0]!r} in {text!r}")

    return re.sub(r"\$\$|\$\{[^}]*\}?|\$.?", one, text, flags=re.DOTALL)


def kubernetes_filled(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes: `$$` is a dollar, `$(NAME)` a variable if there is one."""
    out, at = "", 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            out, at = out + text[at], at + 1
        elif text[at + 1] == "$":
            out, at = out + "$", at + 2
        elif text[at + 1] == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            out, at = out + variables.get(name, f"$({name})"), end + 1
        else:
            out, at = out + text[at : at + 2], at + 2
    return out


def dstack_filled(text: str, variables: Mapping[str, str] | None = None) -> str:
    """What dstack's interpolator makes of a text; what it would refuse or fill in fails."""
    known = variables or {}
    out, start = "", 0
    while start < len(text):
        dollar = text.find("$", start)
        if dollar in (-1, len(text) - 1):
            return out + text[start:]
        if text[dollar + 1] == "$":
            out, start = out + text[start : dollar + 1], dollar + 2
            continue
        opening = text.find("${{", start)
        if opening == -1:
            return out + text[start:]
        closing = text.find("}}", opening)
        assert closing != -1, "no pattern closing"
        name = text[opening + 3 : closing].strip()
        assert name in known, f"dstack would fill in {name!r}"
        out, start = out + text[start:opening] + known[name], closing + 2
    return out


def skypilot_filled(data: Any, variables: Mapping[str, str]) -> Any:
    """SkyPilot: `$NAME` and `${NAME}` in the JSON of a section, if the task has the variable."""
    pattern = r"\$\{?\b([a-zA-Z_][a-zA-Z0-9_]*)\b\}?"
    return json.loads(re.sub(pattern, lambda found: variables.get(found[1], found[0]), json.dumps(data)))


# --- units


_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}


def unit_words(line: str, *, quadlet: bool = False) -> list[str]:
    """The words of a line of a unit. Quadlet's parser reads nothing behind an empty word."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in " \t\n\r":
            at += 1
            continue
        word, quote = "", ""
        while at < len(line) and (quote or line[at] not in " \t\n\r"):
            letter, at = line[at], at + 1
            if letter == quote:
                quote = ""
            elif not quote and letter in "\"'":
                quote = letter
            elif letter == "\\":
                kind, at = line[at], at + 1
                if kind in ("x", "u", "U"):
                    wide = {"x": 2, "u": 4, "U": 8}[kind]
                    word, at = word + chr(int(line[at : at + wide], 16)), at + wide
                else:
                    assert kind in _LETTERS or kind in "\\\"'", kind
                    word += _LETTERS.get(kind, kind)
            else:
                word += letter
        assert not quote, "unbalanced quotes"
        if quadlet and not word:
            return words
        words.append(word)
    return words


def systemd_filled(word: str) -> str:
    """systemd: `%%` and `$$` are plain, and any other is a specifier or a variable."""
    assert not re.search(r"[%$]", re.sub(r"%%|\$\$", "", word)), f"systemd would fill in {word!r}"
    return word.replace("%%", "%").replace("$$", "$")


def unit_sections(text: str) -> dict[str, dict[str, list[str]]]:
    """A unit by section and key; a line that is neither is an error, and so is a continued one."""
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in re.split(r"[\n\r]", text):
        if found := re.fullmatch(r"\[([A-Za-z]+)\]", line):
            section = sections.setdefault(found[1], {})
        elif line and not line.startswith(("#", ";")):
            assert "=" in line and not line.endswith("\\"), line
            key, _, value = line.partition("=")
            assert re.fullmatch(r"[A-Za-z]+", key), line
            section.setdefault(key, []).append(value.strip())
    return sections


# --- the targets


def read_skypilot(text: str) -> Started:
    data = yaml.safe_load(text)
    variables = {**data["envs"], "DRAFTHOUSE_API_KEY": KEY}
    service = skypilot_filled(data["service"], variables)
    assert service["readiness_probe"]["headers"] == {"Authorization": f"Bearer {KEY}"}
    return Started(
        ["/bin/bash", "-c", data["run"]],
        variables,
        ["/bin/bash", "-c", data["setup"]],
        data["resources"]["image_id"].removeprefix("docker:"),
        {name.removeprefix("DRAFTHOUSE_").lower(): value for name, value in data["envs"].items()},
        body=service["readiness_probe"]["post_data"],
        paths=paths_of(data),
    )


def read_dstack(text: str) -> Started:
    data = yaml.safe_load(text)
    fetch, serve = (dstack_filled(command).strip() for command in data["commands"])
    assert "env" not in data
    (probe,) = data["probes"]
    return Started(
        ["/bin/bash", "-i", "-c", f"{fetch} && {serve}"],
        {},
        ["/bin/bash", "-c", fetch],
        data["image"],
        {name.removeprefix("drafthouse-"): value for name, value in data["tags"].items()},
        body=dstack_filled(probe["body"]),
        paths=paths_of(data),
    )


def _pod_command(container: Any, variables: Mapping[str, str]) -> list[str]:
    return [kubernetes_filled(word, variables) for word in [*container["command"], *container.get("args", ())]]


def _pod_variables(entries: Any) -> dict[str, str]:
    variables: dict[str, str] = {}
    for entry in entries:
        value = entry.get("value")
        variables[entry["name"]] = KEY if value is None else kubernetes_filled(value, variables)
    return variables


def read_kubernetes(text: str) -> Started:
    documents = list(yaml.safe_load_all(text))
    kinds = [document["kind"] for document in documents]
    assert kinds == ["PersistentVolumeClaim", "Deployment", "Service", "PodDisruptionBudget", "ServiceMonitor"]
    template = documents[1]["spec"]["template"]
    (engine,), (weights,) = template["spec"]["containers"], template["spec"]["initContainers"]
    variables = _pod_variables(engine["env"])
    probes = [engine[name]["exec"] for name in ("startupProbe", "readinessProbe")]
    assert probes[0] == probes[1]
    return Started(
        _pod_command(engine, variables),
        variables,
        _pod_command(weights, {}),
        engine["image"],
        {name.removeprefix("drafthouse."): value for name, value in template["metadata"]["annotations"].items()},
        # The kubelet fills in variables here too, but none that comes from a Secret.
        probe=[kubernetes_filled(word, {}) for word in probes[1]["command"]],
        paths=paths_of(documents),
    )


def read_production_stack(text: str) -> Started:
    """The chart's Deployment (helm/templates/deployment-vllm-multi.yaml), which quotes arguments."""
    data = yaml.safe_load(text)
    spec = data["servingEngineSpec"]
    (model,) = spec["modelSpec"]
    config = model["vllmConfig"]
    argv = ["vllm", "serve", model["modelURL"], "--host", "0.0.0.0", "--port", str(spec["containerPort"])]
    argv.append("--enable-prefix-caching" if config["enablePrefixCaching"] else "--no-enable-prefix-caching")
    if "tensorParallelSize" in config:
        argv += ["--tensor-parallel-size", str(config["tensorParallelSize"])]
    variables = {"VLLM_API_KEY": KEY, **_pod_variables(model["env"])}
    return Started(
        [kubernetes_filled(word, variables) for word in [*argv, *config["extraArgs"]]],
        variables,
        _pod_command(model["initContainer"], {}),
        f"{model['repository']}:{model['tag']}",
        {name.removeprefix("drafthouse."): value for name, value in model["podAnnotations"].items()},
        paths=paths_of(data),
    )


def read_compose(text: str) -> Started:
    data = yaml.safe_load(text)
    services = applied(compose_filled, data["services"])
    assert set(services) == {"weights", "engine"}
    engine = services["engine"]
    kind, *probe = engine["healthcheck"]["test"]
    assert kind == "CMD"
    return Started(
        [*engine["entrypoint"], *engine["command"]],
        engine["environment"],
        services["weights"]["entrypoint"],
        engine["image"],
        {name.removeprefix("drafthouse."): value for name, value in engine["labels"].items()},
        probe=probe,
        paths=paths_of(data),
    )


def read_quadlet(text: str) -> Started:
    sections = unit_sections(text)
    assert set(sections) == {"Unit", "Container", "Service", "Install"}
    container = sections["Container"]

    def plain(key: str) -> str:
        (value,) = container[key]
        return systemd_filled(value.strip('"'))

    def pairs(key: str) -> dict[str, str]:
        words = [word for value in container.get(key, ()) for word in unit_words(value, quadlet=True)]
        return dict(systemd_filled(word).split("=", 1) for word in words)

    (command,), (fetch,) = container["Exec"], sections["Service"]["ExecStartPre"]
    handed_on = unit_words(command, quadlet=True)
    assert ";" not in handed_on, "Quadlet would end the command"
    podman = [systemd_filled(word) for word in unit_words(fetch)]
    assert podman[:4] == ["/usr/bin/podman", "run", "--rm", "--volume"]
    assert podman[5:] == ["--entrypoint", "/bin/bash", plain("Image"), "-c", podman[-1]]
    # Podman reads a list that begins with CMD as words parted by spaces.
    probe = json.loads(plain("HealthCmd"))
    assert probe[0] == "/bin/bash"
    (secret,) = container["Secret"]
    given = {"VLLM_API_KEY": KEY} if "type=env" in unit_words(secret)[0] else {}
    return Started(
        [*json.loads(plain("Entrypoint")), *(systemd_filled(word) for word in handed_on)],
        {**pairs("Environment"), **given},
        ["/bin/bash", *podman[-2:]],
        plain("Image"),
        {name.removeprefix("drafthouse."): value for name, value in pairs("Label").items()},
        probe=probe,
        paths={f"{section}.{key} {len(values)}" for section, keys in sections.items() for key, values in keys.items()},
    )


READERS: dict[str, Callable[[str], Started]] = {
    "skypilot": read_skypilot,
    "dstack": read_dstack,
    "kubernetes": read_kubernetes,
    "production-stack": read_production_stack,
    "compose": read_compose,
    "quadlet": read_quadlet,
}
