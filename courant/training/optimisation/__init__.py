"""Change the weights: learning rate, gradients, the optimiser and its step, their average."""
