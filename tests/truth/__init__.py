"""Whether the verdict says what is true: laws of known truth, put through the judgement itself."""
