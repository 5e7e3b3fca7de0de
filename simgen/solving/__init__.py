"""Solve, judge and convert cases."""
