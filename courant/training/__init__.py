"""Train: loss, schedule, checkpoints and the loop in plain PyTorch; `ray_train` runs it on Ray."""
