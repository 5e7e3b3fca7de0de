"""Training: loss, schedule, checkpoints and the loop in plain PyTorch; `ray_train` runs the loop on Ray Train."""
