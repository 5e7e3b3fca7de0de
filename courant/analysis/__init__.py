"""Analyse what a trained model's inside looks like, as functions of arrays with known answers."""

from collections.abc import Callable

Progress = Callable[[int, int], None]  # takes what is done, and the total
