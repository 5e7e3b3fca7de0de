"""Encode pictures so that a page holds them itself, and the arrays behind them."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

QUALITY = 88
"""Of WebP: nobody sees a difference, and the page of all panels is a third as large as with PNG"""

_TYPES = {b"\x89PNG": "image/png", b"RIFF": "image/webp"}


def data_url(picture: bytes) -> str:
    """Return a PNG or WebP file as a URL that needs no server."""
    kind = _TYPES[picture[:4]]
    return f"data:{kind};base64,{base64.b64encode(picture).decode()}"


def webp(pixels: np.ndarray) -> bytes:
    """Return pixels (Y, X, 3) of 8 bits as a WebP file, the top row first."""
    return _saved(Image.fromarray(pixels[..., :3]), "WEBP", quality=QUALITY, method=4)


def webp_of_png(png: bytes, width: int | None = None) -> bytes:
    """Return a PNG file as WebP, not transparent; scaled down to a width in pixels if given."""
    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGB")
    if width is not None and image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))))
    return _saved(image, "WEBP", quality=QUALITY, method=4)


def small_png(pixels: np.ndarray) -> bytes:
    """Return pixels (Y, X, 3) of 8 bits as a PNG of at most 32 colours: for icons in tables."""
    return _saved(Image.fromarray(pixels[..., :3]).quantize(32), "PNG", optimize=True)


def _saved(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()
