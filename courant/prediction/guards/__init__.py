"""Tell for which requests a calibration does not speak."""
