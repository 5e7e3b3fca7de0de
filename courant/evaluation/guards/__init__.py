"""Measure whether bands are refused where they would not hold."""
