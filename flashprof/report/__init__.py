"""Floor 4: a run as text, Markdown and flamegraph. Strings out; the caller writes the files."""
