"""Workers of Ray that train: one alone, or several that Ray Train joins."""
