"""Define what can go wrong while a model trains."""

from simgen.errors import SimgenError


class TrainingError(SimgenError):
    """The training cannot continue: a loss is not finite or far off, or a worker failed."""
