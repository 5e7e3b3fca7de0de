"""Say which anchors err in a prediction whose truth is not known."""
