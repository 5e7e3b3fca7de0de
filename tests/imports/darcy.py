"""The importer of docs/a-new-dataset.md as a module."""

from tests.shown import python_of

exec(python_of("a-new-dataset.md"))
