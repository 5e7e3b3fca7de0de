"""Tell what is going on, from records alone: for a person at a terminal and for Prometheus."""
