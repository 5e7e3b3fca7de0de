"""Evaluate trained models beside references that cost nothing."""
