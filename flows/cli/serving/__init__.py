"""Serve a trained model until the command is interrupted."""
