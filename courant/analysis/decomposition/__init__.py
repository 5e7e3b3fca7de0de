"""Score what each anchor contributes to a prediction, and give its errors an address."""
