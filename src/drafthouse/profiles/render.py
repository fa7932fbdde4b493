"""Render a resolved profile into files: those that a run puts on the box, and further files for people.

Only this module renders templates.
"""

from __future__ import annotations

import functools
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import yaml

from ..core.errors import one_problem
from ..core.forms import VARIABLE
from ..core.places import ORDER
from ..core.plain_text import printable
from ..core.shell import compact_json, inside_double_quotes, inside_single_quotes, shell_words
from .container import arm_container, compose_service

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import BuiltArm, File, Folder, ResolvedProfile

#: The first comment of every rendered file.
MANAGED = "Rendered by Drafthouse from templates/{template}; the next run overwrites changes made here."
CONTAINERFILE = "Containerfile"
#: The values of a template's variables.
Context = Mapping[str, object]


@functools.cache
def environment(templates: Path) -> jinja2.Environment:
    """The Jinja environment for the folder ``templates``: Ansible's whitespace rules, an error for undefined variables.

    Its filters make text safe in a shell script, in YAML, in Python and in comments.
    """
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (shell, YAML and Python, where HTML escapes would be wrong)
    )
    env.filters["argv"] = shell_words
    env.filters["json_line"] = compact_json
    env.filters["yaml_block"] = yaml_block
    env.filters["python"] = repr
    env.filters["comment_lines"] = comment_lines
    # For text in a comment: a line break in it would begin a line of the script.
    env.filters["one_line"] = printable
    env.filters["docstring"] = docstring
    env.filters["in_double_quotes"] = inside_double_quotes
    env.filters["in_single_quotes"] = inside_single_quotes
    env.filters["variable"] = variable
    return env


def docstring(text: object) -> str:
    """``text`` escaped for a one-line Python docstring, which it cannot end."""
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')


def variable(name: str) -> str:
    """``name``, unchanged: a shell script has it without quotes. Raises DrafthouseError if it is no variable's name."""
    if VARIABLE.fits(name):
        return name
    raise one_problem("wrong-format", repr(name), VARIABLE.needed, "correct it in profiles/catalog/engines")


def comment_lines(text: str) -> str:
    """``text`` as lines of a comment, 110 columns wide."""
    return textwrap.fill(
        printable(text),
        110,
        initial_indent="# ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def yaml_block(data: object) -> str:
    """``data`` as YAML in the given order, one key a line, without a final newline."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000).rstrip()


def arm_files(templates: Path, resolved: ResolvedProfile, arm: BuiltArm) -> list[File]:
    """Render the files that a run puts on the box for one arm; paths are below the arm's folder.

    They are serve.sh and, for an engine that reads one, its configuration. The configuration's name differs by arm, so
    its key ``part`` says which files of two arms belong together.
    """
    data = {**_common_values(resolved), **arm}
    files = [render_file(templates, resolved["engine"]["template"], "serve.sh", "0755", data)]
    if arm["config"] and resolved["config_template"]:
        files.append(render_file(templates, resolved["config_template"], arm["config"]["file"], "0644", data))
        files[-1]["part"] = "config"
    return files


def extra_files(templates: Path, resolved: ResolvedProfile) -> list[File]:
    """Render the files for people; paths are below `build/<profile>/`.

    They are a script that sends a first request to the server; the Containerfile of a derived image; the files of the
    arm stock if it is not measured; and for each arm a compose.yaml, if the engine runs in Docker, and a script with
    the same speculation in the engine's Python API, if it has one.
    """
    files = [render_file(templates, "smoke.sh.j2", "smoke.sh", "0755", _common_values(resolved))]
    if derived := resolved["derived_image"]:
        files.append({"path": CONTAINERFILE, "mode": "0644", "content": derived["containerfile"]})
    arms: dict[str, BuiltArm] = {**resolved["arms"]}
    if resolved["stock"] and "stock" not in arms:
        arms["stock"] = resolved["stock"]
        files += [
            {**file, "path": f"stock/{file['path']}"} for file in arm_files(templates, resolved, resolved["stock"])
        ]
    for name, arm in arms.items():
        data = {**_common_values(resolved), **arm, "arm": name}
        if arm["container"]:
            files.append(_compose_file(templates, resolved, name))
        offline = resolved["engine"]["offline_template"]
        if offline:
            files.append(render_file(templates, offline, f"{name}/offline.py", "0755", data))
    return files


class _Indented(yaml.SafeDumper):
    """A dumper that indents lists below their key, as is usual in a compose.yaml."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _compose_file(templates: Path, resolved: ResolvedProfile, arm: str) -> File:
    """Render an arm's compose.yaml, which also builds a derived image."""
    service = dict(compose_service(arm_container(resolved, arm)))
    if resolved["derived_image"]:
        service["build"] = {"context": "..", "dockerfile": CONTAINERFILE}
    text = yaml.dump(
        {"services": {"engine": service}}, Dumper=_Indented, sort_keys=False, allow_unicode=True, width=1000
    )
    data = {**_common_values(resolved), "services": text}
    return render_file(templates, "compose.yaml.j2", f"{arm}/compose.yaml", "0644", data)


def _common_values(resolved: ResolvedProfile) -> Context:
    """The template variables that do not depend on the arm."""
    return {
        "profile": resolved["profile"],
        "title": resolved["title"],
        "site": resolved["site"],
        "engine": resolved["engine"],
        "target": resolved["target"],
        "method": resolved["method"],
        "key_file": resolved["key_file"],
        "offline": resolved["offline"],
        "unpinned": resolved["unpinned"],
        "derived_image": resolved["derived_image"],
    }


def render_file(templates: Path, template: str, path: str, mode: str, data: Context) -> File:
    """Render ``template``, a file of ``templates``, to a file at ``path``; ``mode`` as chmod takes it.

    Raises DrafthouseError if the template does not exist.
    """
    try:
        jinja_template = environment(templates).get_template(template)
    except jinja2.TemplateNotFound as error:
        raise one_problem(
            "no-such-file",
            f"no template {template!r}",
            "a file of templates/",
            "correct the name",
            "profiles/catalog/engines",
        ) from error
    content = jinja_template.render(managed=MANAGED.format(template=template), **data)
    return {"path": path, "mode": mode, "content": content}


def program_entries(
    templates: Path, folder: str, template: str, data: Context, order: Context | None = None
) -> list[Folder | File]:
    """The folders and files of a program that runs beside the engine, such as the gateway, in the form for `lay_out`.

    ``template``: that of its serve.sh, which also gets ``folder``; a change of its text restarts the program.
    ``order``: settings that the program reads again each time it acts, so that they need no restart; None for none.
    """
    entries: list[Folder | File] = [{"path": folder, "mode": "0750"}, {"path": f"{folder}/logs", "mode": "0750"}]
    if order is not None:
        entries.append({"path": f"{folder}/{ORDER}", "mode": "0600", "content": json.dumps(order, indent=1) + "\n"})
    return [*entries, render_file(templates, template, f"{folder}/serve.sh", "0755", {**data, "folder": folder})]
