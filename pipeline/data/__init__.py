"""From text to batches: corpora, tokenizers, the Arrow data set, length buckets, the plan of an epoch."""
