"""The versioned dataset store: Zarr point clouds in an Icechunk repository, on a local path or S3."""
