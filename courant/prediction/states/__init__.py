"""Read the states that a prediction starts from, and those that it is compared with."""
