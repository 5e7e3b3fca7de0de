"""`courant serve`: a trained model behind HTTP until the command is interrupted."""

from __future__ import annotations

import signal
import socket
import threading

from courant.runs.directory import RunDirectory
from courant.serving import ray_serve
from courant.serving.http_app import build_app
from courant.serving.http_server import MAX_CONNECTIONS, HttpServer
from courant.serving.requests import Limits
from flows.ray_cluster import ensure_ray
from flows.settings import load_settings
from flows.terminal import errors, screen
from simgen.errors import InputError


def serve_model(run: str, host: str, port: int, limits: Limits) -> None:
    """Serve a run until SIGTERM, or Ctrl-C, which is an interruption as in any command.

    InputError where the run, the port or Ray is not there.
    """
    if not RunDirectory(run).exists("model.safetensors"):
        raise InputError(f"{run} has no model.safetensors; give the folder of a trained run, <runs>/<name>-<hash>")
    if load_settings().jobs_address:
        raise InputError(
            "courant serve runs on the Ray of this machine: unset RAY_ADDRESS, or give it as host:6379 to join a cluster"
        )
    listener = _listen(host, port)
    asked_to_end = threading.Event()
    with errors.status("starting Ray Serve, loading the model"):
        ensure_ray()
        model = ray_serve.start(run, limits)
        server = HttpServer(build_app(run.rstrip("/").rsplit("/", 1)[-1], model, limits), listener)
        server.start()
    try:
        screen.print(
            f"serving  http://{host}:{port}/predict   what it takes: /model and /docs   end with Ctrl-C",
            highlight=False,
        )
        # Not before: while the model is loaded, Ctrl-C ends the command where it stands.
        signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
        asked_to_end.wait()
    finally:
        server.stop()
        ray_serve.stop()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from error
    return listener
