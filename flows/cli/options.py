"""Define options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from flows.settings import RUNS, STORE, absolute


def allowed_hosts(names: list[str] | None) -> list[str]:
    """Return the names given for --allow-host; BadParameter for what is no host's name."""
    for name in names or ():
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", name):
            raise typer.BadParameter(
                f"'{name}' is not the name of a host: write it without scheme and port, such as"
                " courant.example.com or *.example.com"
            )
    return names or []


Split = Literal["train", "validation", "test"]
Runs = Annotated[
    str | None,
    typer.Option(
        help=(
            "Where trained models live: a folder or s3://bucket/prefix."
            f" [env: COURANT_RUNS; default: {RUNS}]"
        )
    ),
]
RunUrl = Annotated[
    str,
    typer.Argument(
        help="Run directory of a trained model: a folder, s3://bucket/prefix or a packed run."
    ),
]
RunUrls = Annotated[
    list[str], typer.Argument(help="Two run directories or more: folders or s3://bucket/prefix.")
]
Store = Annotated[
    str | None,
    typer.Option(
        help=(
            "Where datasets live: a folder or s3://bucket/prefix."
            f" [env: COURANT_STORE; default: {STORE}]"
        )
    ),
]
DatasetUrl = Annotated[
    str,
    typer.Argument(
        help="Dataset: a folder or s3://bucket/prefix, such as demo-run/store/cylinder-flow."
    ),
]
MovedDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="URL",
        callback=lambda url: absolute(url) if url else None,
        help="Where the dataset of the training lies now, if it was moved; checked to be the same.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        callback=allowed_hosts,
        help=(
            "Name that requests may be for, as a proxy passes it on; repeat for several. On"
            " loopback, and where names are given, requests for others are rejected."
        ),
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
Version = Annotated[
    str | None, typer.Option(help="Dataset version, such as v2; default: the newest.")
]
