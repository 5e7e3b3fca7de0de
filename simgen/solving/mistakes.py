"""Tell a mistake in a family's code as one, with its place.

No machine and no store is to blame for it, and another attempt does not help.
"""

from __future__ import annotations

import contextlib
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from PyFoam.ThirdParty.pyratemp import TemplateException

from simgen.errors import ProgramError, SimgenError

#: What Python and PyFoam's templates raise for mistakes; trouble of a machine, such as OSError, is
#: none.
MISTAKES = (
    TemplateException,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("platlib"))
_OWN = str(Path(__file__).parents[1])


@contextlib.contextmanager
def as_program_error(case: str) -> Iterator[None]:
    """Raise ProgramError for a mistake in the block, with its class and place in one line."""
    try:
        yield
    except SimgenError:
        raise
    except MISTAKES as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise ProgramError(
            f"case {case}: {said}, in {_place(error)}; the program is at fault, not the case:"
            " --verbose shows the traceback",
            "".join(traceback.format_exception(error)),
        ) from error


def _place(error: Exception) -> str:
    """Name the innermost line that is no library's: `write_case (family.py, line 12)`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames[1:] if not _is_of_a_library(each.filename)]
    frame = (own or frames)[-1]
    return f"{frame.name} ({frame.filename}, line {frame.lineno})"


def _is_of_a_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) and not file.startswith(_OWN)
