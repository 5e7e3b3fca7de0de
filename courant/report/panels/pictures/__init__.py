"""Pictures of a predicted flow."""
