"""Tokens that are known by their form: gitleaks' rules, and those of this field that it has not.

A rule is tried only around the words that it asks for, as gitleaks does it: 230 patterns over every letter of a log
would take minutes. Standard library only, Python 3.10.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import log2

from .gitleaks_rules import RULES

#: Where a word begins, also behind a line's end as JSON writes it and behind a sign as URLs do.
START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_PARTS = {
    "START": START,
    # The rest of a name, and what stands between it and its value; quotes may be escaped.
    "TAIL": r"[ \t\w.-]{0,20}[\s'\"\\]{0,4}",
    "IS": r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[`'\"\s=\\]{0,6}",
    "END": r"(?![A-Za-z0-9_-])",
}
#: As gitleaks' rules: name, least entropy, words, pattern.
OURS: tuple[tuple[str, float, str, str], ...] = (
    # Those of the engines, hubs and clouds that a GPU box talks to.
    # hf_snapshot, hf_transfer and their like are none.
    ("huggingface", 0, "hf_", r"{START}hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{30,})"),
    ("huggingface-organization", 0, "api_org_", r"{START}api_org_[A-Za-z0-9]{8,}"),
    ("openai-like", 0, "sk-", r"{START}sk-[A-Za-z0-9_-]{12,}"),
    ("nvidia", 0, "nvapi-", r"{START}nvapi-[A-Za-z0-9_-]{16,}"),
    ("groq", 0, "gsk_", r"{START}gsk_[A-Za-z0-9]{20,}"),
    ("xai", 0, "xai-", r"{START}xai-[A-Za-z0-9]{20,}"),
    ("replicate", 0, "r8_", r"{START}r8_[A-Za-z0-9]{20,}"),
    ("together", 0, "tgp_v1_", r"{START}tgp_v1_[A-Za-z0-9_-]{20,}"),
    ("fireworks", 0, "fw_", r"{START}fw_[A-Za-z0-9]{20,}"),
    ("cerebras", 0, "csk-", r"{START}csk-[A-Za-z0-9]{20,}"),
    ("runpod", 0, "rpa_", r"{START}rpa_[A-Z0-9]{20,}"),
    ("pinecone", 0, "pcsk_", r"{START}pcsk_[A-Za-z0-9_]{20,}"),
    ("langsmith", 0, "lsv2_", r"{START}lsv2_(?:pt|sk)_[a-f0-9_]{20,}"),
    ("langfuse", 0, "sk-lf-", r"{START}sk-lf-[a-f0-9-]{20,}"),
    ("modal", 0, "as-", r"{START}as-[A-Za-z0-9]{22}{END}"),
    ("civitai-or-wandb", 3, "wandb netrc", r"(?i:wandb[\w .-]{0,20}{IS}([a-f0-9]{40}){END})"),
    # Those of code, packages and images; shorter than gitleaks asks for, as a cut line has them.
    ("github", 0, "ghp_ gho_ ghu_ ghs_ ghr_", r"{START}gh[pousr]_[A-Za-z0-9]{20,}"),
    ("github-fine-grained", 0, "github_pat_", r"{START}github_pat_[A-Za-z0-9_]{20,}"),
    ("gitlab", 0, "glpat-", r"{START}glpat-[A-Za-z0-9_-]{16,}"),
    ("bitbucket", 0, "atbb atctt", r"{START}AT(?:BB|CTT3)[A-Za-z0-9_=-]{24,}"),
    ("docker", 0, "dckr_", r"{START}dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}"),
    ("pypi", 0, "pypi-age", r"{START}pypi-AgE[A-Za-z0-9_-]{16,}"),
    ("npm", 0, "npm_", r"{START}npm_[A-Za-z0-9]{20,}"),
    ("sourcegraph", 0, "sgp_", r"{START}sgp_[A-Za-z0-9_]{30,}"),
    ("pulumi", 0, "pul-", r"{START}pul-[a-f0-9]{30,}"),
    # Those of clouds.
    ("aws-key-id", 0, "akia asia abia acca", r"{START}A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}{END}"),
    ("google-key", 0, "aiza", r"{START}AIza[A-Za-z0-9_-]{30,}"),
    ("google-oauth", 0, "ya29. gocspx-", r"{START}(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}"),
    ("google-refresh", 0, "1//0", r"{START}1//0[A-Za-z0-9_-]{30,}"),
    ("azure-storage", 0, "accountkey sharedaccesskey", r"(?i:(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{20,}={0,2}))"),
    ("tailscale", 0, "tskey-", r"{START}tskey-[a-z]+-[A-Za-z0-9-]{16,}"),
    ("cloudflare-tunnel", 0, "eyjhijoi", r"{START}eyJhIjoi[A-Za-z0-9+/=_-]{30,}"),
    ("supabase", 0, "sbp_ sb_secret_", r"{START}(?:sbp_|sb_secret_)[A-Za-z0-9_-]{20,}"),
    ("vault", 0, "hvs. hvb. hvr.", r"{START}hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    ("age", 0, "age-secret-key-", r"AGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{20,}"),
    # Those of messages and payments.
    ("slack", 0, "xox xapp-", r"{START}(?:xox[a-z](?:\.xox[bp])?|xapp)-[A-Za-z0-9-]{10,}"),
    ("slack-hook", 0, "hooks.slack.com", r"hooks\.slack(?:-gov)?\.com\\?/(?:services|workflows|triggers)\\?/([A-Za-"
     r"z0-9/\\_-]{10,})"),
    ("discord-hook", 0, "webhooks/", r"discord(?:app)?\.com\\?/api\\?/webhooks\\?/([0-9]+\\?/[A-Za-z0-9_-]{20,})"),
    ("discord-bot", 0, "m n o", r"{START}[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}{END}"),
    ("telegram", 0, ":aa", r"{START}[0-9]{8,10}:AA[A-Za-z0-9_-]{32,34}{END}"),
    ("stripe", 0, "sk_ rk_ whsec_", r"{START}(?:[sr]k_(?:live|test|prod)|whsec)_[A-Za-z0-9+/=]{10,}"),
    ("sendgrid", 0, "sg.", r"{START}SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("azure-ad", 3, "q~", r"{START}[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}{END}"),
    ("docker-config", 0, "eyjhdxro", r"{START}eyJhdXRo[A-Za-z0-9+/=_-]{20,}"),
    ("jwt", 0, "eyj", r"{START}eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}"),
    # Hashes of passwords, as a shadow file, htpasswd and Caddy have them: they can be tried at leisure.
    ("password-hash", 0, "$1$ $5$ $6$ $y$ $2 $apr1$ $argon2 $pbkdf2",
     r"\$(?:1|5|6|y|apr1|2[abxy]?|argon2(?:id|i|d)|pbkdf2[a-z0-9-]*)\$[A-Za-z0-9./$=,+-]{20,}"),
)  # fmt: skip
_BEFORE, _BEHIND = 200, 1200  # letters around a word in which its rule may find something
_MORE = re.compile(r"[A-Za-z0-9+/=_-]*")


def without_tokens(text: str, gone: str) -> str:
    """Return the text with ``gone`` in the place of each token that a rule knows."""
    # The only letter of Unicode whose small form is longer than itself.
    small = text.replace("\u0130", "i").lower()
    found = sorted(span for rule in (*OURS, *RULES) for span in _found(rule, text, small))
    kept: list[str] = []
    behind = 0
    for begin, end in found:
        if begin >= behind:
            kept += [text[behind:begin], gone]
        behind = max(behind, end)
    return "".join([*kept, text[behind:]])


def _found(rule: tuple[str, float, str, str], text: str, small: str) -> Iterator[tuple[int, int]]:
    _, entropy, words, pattern = rule
    for begin, end in _places(words, small):
        expression, by_group = compiled(pattern)
        for one in expression.finditer(text, begin, end):
            group = next((number for number in range(1, expression.groups + 1) if one[number]), 0) if by_group else 0
            if not entropy or _entropy(one[group]) > entropy:
                # A token that is longer than what was looked at goes to its end.
                more = _MORE.match(text, one.end(group)) if one.end(group) == end else None
                yield one.start(group), more.end() if more else one.end(group)


def _places(words: str, small: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of what lies around the words, what overlaps as one."""
    hits: list[int] = []
    for word in words.split():
        at = small.find(word)
        while at >= 0:
            hits.append(at)
            at = small.find(word, at + 1)
    begin = end = -1
    for hit in sorted(hits):
        if hit - _BEFORE <= end:
            end = hit + _BEHIND
            continue
        if end >= 0:
            yield begin, min(end, len(small))
        begin, end = max(0, hit - _BEFORE), hit + _BEHIND
    if end >= 0:
        yield begin, min(end, len(small))


@cache
def compiled(pattern: str) -> tuple[re.Pattern[str], bool]:
    """Return the pattern ready to run, and whether the secret is one of its groups and not all that it finds."""
    full = pattern
    for name, part in _PARTS.items():
        full = full.replace(f"{{{name}}}", part)
    compiled = re.compile(full, re.ASCII)
    return compiled, compiled.groups == 1 or "{IS}" in pattern


def _entropy(text: str) -> float:
    """Return Shannon's entropy in bits a character, as gitleaks counts it."""
    return -sum(count / len(text) * log2(count / len(text)) for count in Counter(text).values())
