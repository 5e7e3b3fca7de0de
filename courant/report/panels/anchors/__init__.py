"""Panels on what single anchors do."""
