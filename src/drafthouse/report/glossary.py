"""What the heads of the page's tables mean, in a sentence that stands over them; docs/glossary.md has more."""

from __future__ import annotations

TERMS = {
    "A/A": "The baseline's odd rounds against its even ones: what noise alone does",
    "Accepted": "Accepted tokens over drafted tokens",
    "Rate": "Accepted tokens over drafted tokens",
    "Mean length": "Mean tokens that a draft yields: 1 + accepted tokens over drafts",
    "Equal outputs": "Answers at temperature 0 that are the same text in both arms",
    "Speed-up": "The baseline's time per output token over the speculative arm's, paired by prompt; above 1 is faster",
    "Baseline": "The same server without speculation",
    "Speculative": "The same server with speculation",
    "Goodput": "Requests a second that were within the limits",
    "Server": "Output tokens a second of all requests together",
    "User": "Output tokens a second of one request, after its first token",
    "K": "The most tokens that are drafted in a step",
    "TTFT": "Time to first token, from when the request was sent",
    "First answer": "Time to the first token of the answer, after the thinking",
    "TPOT": "Time per output token after the first: (end - first token) / (tokens - 1)",
    "ITL": "Inter-token latency: the time between two pieces of the stream",
    "Whole answer": "From when the request was sent to the answer's last token",
    "p50": "Half of the answers took at most so long",
    "p95": "95 of 100 answers took at most so long",
    "p99": "99 of 100 answers took at most so long",
}
