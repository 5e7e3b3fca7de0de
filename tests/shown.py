"""Python that a page of docs shows, which tests execute as a module of their own."""

import re

from tests.declared import ROOT


def python_of(page: str) -> str:
    """The page's only block of Python."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    return code
