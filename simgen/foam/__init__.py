"""Find OpenFOAM, run its applications, and read its logs and files."""
