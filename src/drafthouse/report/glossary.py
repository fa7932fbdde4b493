"""Explanations of the column headings of the HTML page, which shows them as tooltips; docs/glossary.md has more."""

from __future__ import annotations

TERMS = {
    "A/A": "The baseline's odd rounds against its even ones: the effect of noise alone",
    "Accepted": "Accepted tokens over drafted tokens",
    "Rate": "Accepted tokens over drafted tokens",
    "Mean length": "Mean tokens per draft: 1 + accepted tokens over drafts",
    "Equal outputs": "Answers at temperature 0 with the same text in both arms",
    "Speed-up": "The baseline's time per output token over the speculative arm's, paired by prompt; above 1 is faster",
    "Baseline": "The same server without speculation",
    "Speculative": "The same server with speculation",
    "Goodput": "Requests per second within the limits",
    "Server": "Output tokens per second of all requests together",
    "User": "Output tokens per second of one request, after its first token",
    "K": "The most tokens drafted in a step",
    "TTFT": "Time to first token, from when the request was sent",
    "First answer": "Time to the first token of the answer, after the thinking",
    "TPOT": "Time per output token after the first: (end - first token) / (tokens - 1)",
    "ITL": "Inter-token latency: the time between two pieces of the stream",
    "Whole answer": "From when the request was sent to the answer's last token",
    "p50": "Half of the answers took at most this long",
    "p95": "95 of 100 answers took at most this long",
    "p99": "99 of 100 answers took at most this long",
}
