"""Prefect flows over the functions of simgen and courant, and the command line."""
