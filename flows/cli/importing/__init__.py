"""`courant dataset import`."""
