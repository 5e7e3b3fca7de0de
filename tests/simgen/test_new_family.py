"""The code of both pages of docs/families is what tests/end_to_end/test_own_families.py runs."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__)
PAGES = HERE.parents[2] / "docs/families"


@pytest.mark.parametrize(
    ("page", "module"),
    [("a-new-family.md", "lid_cavity.py"), ("a-transient-family.md", "heated_plate.py")],
)
def test_the_page_shows_the_code_that_is_tested(page: str, module: str) -> None:
    text = (PAGES / page).read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert (HERE.parent / module).read_text().endswith(code)
    assert len(text.splitlines()) < 150
