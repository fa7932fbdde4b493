"""Forms (`schema.Form`) of words in profiles, catalogue and inventories that are written unquoted into other files.

A text that can be quoted there (a title, a flag's value) needs no form: it may be any printable text.
"""

from __future__ import annotations

from typing import Annotated

from .schema import Form

# Characters of a path that mean nothing special to a shell, systemd, supervisord, docker compose or a Caddyfile, each
# of which gives some others a meaning. supervisord takes what follows " #" for a comment.
_PATH_LETTERS = r'(?!.*[ ]#)[^"\\$`%{}:;\x00-\x1f\x7f]'
_PART = r"(?!\.{1,2}(?:/|$))(?!-)[A-Za-z0-9@+=_.,-]+"

VARIABLE = Form(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable: letters, digits and _")
OPTION = Form(VARIABLE.pattern, "a word of letters, digits and _")
VALUE = Form(r"(?!-)[\s\S]*", "text that does not begin with -: a program would take it for another option")
PROGRAM = Form(r"(?!-)[\s\S]+", "a program's name, which does not begin with -")
# A profile's name is also the name of a folder on the box.
PROFILE_NAME = Form(
    rf"(?![-.])(?:(?!/){_PATH_LETTERS})+",
    'a name that begins with neither . nor -, and has none of / " \\ $ ` % { } : ;',
)
NAME = Form(r"[A-Za-z0-9][A-Za-z0-9._+-]*", "a name of letters, digits and . _ + -")
FOLDER = Form(rf"/{_PATH_LETTERS}*", 'an absolute path without any of " \\ $ ` % { } : ; and without a # after a space')
# In a path that begins with ~/, ~ is the home of the user on the box.
HOME = Form(f"~?{FOLDER.pattern}", FOLDER.needed.replace("path", "path, or one below ~/,", 1))
FILE = Form(rf"{_PART}(?:/{_PART})*", "a path below its folder, of letters, digits and . _ + - @ , =")
ROUTE = Form(r"/[A-Za-z0-9._~/-]*", "a path of the server, such as /health")
# An IPv4 or IPv6 address (with or without brackets), or a host name.
HOST = Form(r"(?!-)[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?", "an address or a host's name")
IMAGE = Form(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", "a container image's name, such as registry.example/engine:v0.32.0")
PINNED_IMAGE = Form(
    r"[A-Za-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}", "an image with its digest, such as name:tag@sha256:..."
)
TAG = Form(
    r"(?![.-])(?:[A-Za-z0-9_.-]|\{(?:version|build|plugin)\})+", "a tag, with {version}, {plugin} and {build} filled in"
)
# The part of PEP 440 that the engines' versions use.
VERSION = Form(
    r"\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.?post\d+)?(?:\.?dev\d+)?(?:\+[a-z0-9.]+)?", "a version, such as 0.32.0"
)
# Hugging Face's rule for names, without names that a program could take for an option or a path.
REPO = Form(
    r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)?", "a repository of the hub, as org/name"
)
REVISION = Form(r"(?!.*(?:\.\.|//))[A-Za-z0-9_][A-Za-z0-9._/+-]*", "a commit's 40 digits, or a branch's name")
SHA256 = Form(r"[0-9a-f]{64}", "a sha256: 64 of the digits 0-9 and a-f")
DIGEST = Form(r"sha256:[0-9a-f]{64}", "sha256: and 64 of the digits 0-9 and a-f")
REQUIREMENT = Form(r"[A-Za-z0-9][^\x00-\x1f\x7f]*", "a package as pip has it, such as vllm==0.32.0")
URL = Form(r"https?://[^\s\x00-\x1f\x7f]+", "an address that begins with http:// or https://")
GPU = Form(r"0|[1-9]\d?|GPU-[0-9A-Fa-f-]+", "a GPU as nvidia-smi -L lists it: its index, or its UUID (GPU-...)")
NUMBER = Form(r"\d+\.\d+", "a number with a point, such as 12.0")
DATE = Form(r"\d{4}-\d\d-\d\d", "a date, such as 2026-11-22")

# The forms as types of a TypedDict's keys (`typed_shape.py`).
Version = Annotated[str, {"form": VERSION}]
Name = Annotated[str, {"form": NAME}]
File = Annotated[str, {"form": FILE}]
Plain = Annotated[str, {"form": VALUE}]
Repo = Annotated[str, {"form": REPO}]
Revision = Annotated[str, {"form": REVISION}]
Requirement = Annotated[str, {"form": REQUIREMENT}]
Count = Annotated[int, {"low": 1}]
Variables = Annotated[dict[str, str], {"names": VARIABLE}]
