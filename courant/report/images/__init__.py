"""Colours, sampled fields and encoded pictures, which pages and panels are made of."""
