"""The whole cluster on one machine, by one command: `make rehearse`."""
