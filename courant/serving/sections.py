"""Define what the explorer's page asks of a design, and what it is answered."""

from __future__ import annotations

from pydantic import BaseModel, Field, FiniteFloat

from courant.serving.designs import DesignBandsAnswer, DesignRequest, DesignSeconds


class SectionRequest(DesignRequest):
    """A design to show."""

    anchors: bool = False
    """whether to tell where the anchors are"""
    position: FiniteFloat | None = None
    """m: the plane of a 3D design, on the axis along which it is thinnest; null: its middle"""


class Section(BaseModel):
    """A predicted design in the plane of the picture, and its quantities."""

    across: str
    """the coordinate that runs to the right"""
    up: str
    plane: str
    """such as `y = 0 m`"""
    position: float
    """m, of the plane"""
    positions: tuple[float, float] | None
    """m: from where to where a plane may lie; null in 2D"""
    x: list[float]
    """(V,) m"""
    y: list[float]
    triangles: list[tuple[int, int, int]]
    """(F,) corners"""
    channels: list[str]
    units: list[str]
    limits: list[tuple[float, float]]
    """by channel: the ends of its colours, the same for all designs"""
    values: list[list[float]]
    """by channel, (V,)"""
    widths: list[list[float]] | None
    """by channel, (V,): half-widths of the band; null where none holds"""
    quantities: dict[str, float | None]
    not_predicted: dict[str, str]
    bands: DesignBandsAnswer | None
    """without values of fields"""
    anchors: list[tuple[float, float]]
    """places of the anchors in the picture; empty where they have none, or were not asked for"""
    start: str
    """what a transient prediction started from, in words; empty for a steady model"""
    has_surface: bool
    """whether `POST /surfaces` has the boundary"""
    num_cells: int
    known_geometry: bool
    seconds: DesignSeconds
    warnings: list[str]
    """what is unlike the training data"""


class ContributionRequest(DesignRequest):
    """A place in the picture of a design."""

    x: float
    y: float
    position: FiniteFloat | None = None
    """m: of the picture's plane, as for a section"""
    channel: int = Field(ge=0)


class Contribution(BaseModel):
    """What one anchor adds to a value."""

    anchor: int
    value: float
    x: float | None
    """its place in the picture"""
    y: float | None


class Contributions(BaseModel):
    """The value at the cell nearest to a place, as a sum."""

    x: float
    y: float
    value: float
    offset: float
    anchors: list[Contribution]
    """those that add or take most, the largest first"""
    rest: float
    """what all others add together"""
