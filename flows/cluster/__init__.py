"""Connect to Ray clusters and jobs, and to Prefect's API."""
