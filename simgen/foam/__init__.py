"""OpenFOAM at arm's length: finding it, running its applications, reading its logs and its files."""
