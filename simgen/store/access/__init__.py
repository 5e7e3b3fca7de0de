"""Read and write dataset versions in a repository."""
