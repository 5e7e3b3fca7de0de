"""Analyse what a trained model's inside looks like, as functions of arrays with known answers."""
