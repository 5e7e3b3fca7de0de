"""The importer of docs/a-new-dataset.md as a module."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/a-new-dataset.md"
(code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
exec(compile(code, PAGE, "exec"))
