"""Orchestrate: Prefect flows over the pure functions of simgen and courant, and the command line.

Nothing imports this.
"""
