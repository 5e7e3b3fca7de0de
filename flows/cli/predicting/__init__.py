"""Predict into files, for `courant predict`: a stored case, or on a mesh of another source."""
