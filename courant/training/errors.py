"""What can go wrong while a model trains."""

from simgen.errors import SimgenError


class TrainingError(SimgenError):
    """The training cannot go on as it is: a loss that is not finite, a worker that failed for good."""
