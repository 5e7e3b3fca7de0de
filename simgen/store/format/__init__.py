"""Define the data format: arrays, shapes, units, tables, seals and digests, schema versions."""
