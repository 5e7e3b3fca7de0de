"""Import cases solved elsewhere as ordinary dataset versions.

An importer reads a source's files and yields its cases one by one:

    schema = imported_schema("darcy-flow", dimension=2, fields=..., source=Source(...))
    import_cases("store/darcy-flow", schema, (SourceCase(...) for file in files))
"""

from simgen.case import Field
from simgen.design_space import Parameter
from simgen.imports.importing import (
    Imported,
    SourceCase,
    grid_points,
    import_cases,
    imported_schema,
)
from simgen.point_cloud import BoundaryCloud
from simgen.store.schema import Source

__all__ = [
    "BoundaryCloud",
    "Field",
    "Imported",
    "Parameter",
    "Source",
    "SourceCase",
    "grid_points",
    "import_cases",
    "imported_schema",
]
