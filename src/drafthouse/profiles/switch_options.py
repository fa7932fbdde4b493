"""The settings that switch speculation by batch size, in the order of preference, with their form.

A file of its own, without imports: the resolver reads it without numpy, and the box without `packaging`.
"""

#: Rows of [first batch size, last, K] (vLLM); or one number, the largest batch that is drafted for.
ROWS, LARGEST = "rows", "largest"
OPTIONS = {
    "num_speculative_tokens_per_batch_size": ROWS,
    "max_concurrency": LARGEST,
    "disable_by_batch_size": LARGEST,
}
