"""Store versioned datasets: Zarr point clouds in Icechunk, on a local path or S3."""
