"""Present versions to others: exports, cards, figures, and the command that remakes one."""
