"""What a surrogate cost, what it saves, and what the solver itself offers for less."""
