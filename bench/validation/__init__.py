"""Studies that a CFD engineer asks for before trusting a dataset; each prints a table and writes
JSON (docs/validation.md).
"""
