"""Dataset version -> trajectories in memory -> windows -> Batch; and the normalisation that every number passes."""
