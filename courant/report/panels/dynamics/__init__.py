"""Panels of long rollouts: their frequencies, and whether they can be trusted."""
