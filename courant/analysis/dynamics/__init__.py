"""Measure what moves: frequencies, latent spectra, modes, and the Jacobian of the processor."""
