"""Train: loss, schedule, checkpoints and the loop in plain PyTorch; `ray_train` is for Ray."""
