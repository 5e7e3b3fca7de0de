"""Check, compare and repair published datasets."""
