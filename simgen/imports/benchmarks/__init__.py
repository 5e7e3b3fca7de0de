"""Public benchmarks: data of the same kind made here, and the published files."""
