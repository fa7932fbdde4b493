"""Turn one arm into the files that are put on the box: the only place where templates meet data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from .argv import compact_json, shell_words

MANAGED = "Rendered by Drafthouse from templates/{template}; the next run overwrites changes made here."


def environment(templates: Path) -> jinja2.Environment:
    """Return the Jinja environment of the house: Ansible's whitespace rules, undefined names are errors."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 (shell and YAML, where HTML escapes would be wrong)
    )
    env.filters["argv"] = shell_words
    env.filters["json_line"] = compact_json
    return env


def render_files(templates: Path, template: str, data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Render the files of one arm: ``[{path, mode, content}]``, paths relative to the arm's folder."""
    text = environment(templates).get_template(template).render(managed=MANAGED.format(template=template), **data)
    return [{"path": "serve.sh", "mode": "0755", "content": text}]
