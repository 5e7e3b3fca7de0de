"""Commands that tell what is going on."""
