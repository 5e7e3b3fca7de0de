"""How good a trained model is, beside references that cost nothing, and the report that shows it."""
