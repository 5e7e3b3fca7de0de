"""The family of docs/families/a-new-family.md as a module."""

from tests.shown import python_of

exec(python_of("families/a-new-family.md"))
