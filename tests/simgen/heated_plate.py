"""The family of docs/families/a-transient-family.md as a module."""

from tests.shown import python_of

exec(python_of("families/a-transient-family.md"))
