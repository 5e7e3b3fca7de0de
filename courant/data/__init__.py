"""Turn a dataset version into batches: trajectories, windows, normalised tensors."""
