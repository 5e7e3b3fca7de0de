"""The explorer's server over a model of this process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from courant.prediction.answers import Answers, RegressedQuantity
from courant.serving.explorer import Explored
from courant.serving.http_app import ServedModel, Solving, build_app, running


def answers_of_shares() -> Answers:
    """Answers that regress `branch1_share` on eight designs."""
    designs = np.random.default_rng(0).uniform(-1, 1, (8, 5))
    regressed = RegressedQuantity(
        values=tuple(designs[:, 1].tolist()), logs=(0.0,) * 6, share=0, scatter=0, scores=(1.0,) * 8
    )
    return Answers(designs=designs.tolist(), quantities={"branch1_share": regressed})


@contextmanager
def serving_explored(explored: Explored, solving: Solving | None = None) -> Iterator[str]:
    """Serve on a free port; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = build_app("explored", ServedModel(explored), explored.limits, solving=solving)
    with running(app, listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
