"""Write figures as PNG files."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

DPI = 110


def png_bytes(figure: Figure, dpi: int = DPI) -> bytes:
    """Return the figure as a PNG file's content."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
