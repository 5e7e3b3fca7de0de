"""No OpenFOAM file of a stranger hangs an import, or takes more memory than its size explains."""

import gzip
import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam.dictionaries import read_entry
from simgen.foam.field import read_field
from simgen.foam.log import SolverLog
from simgen.foam.mesh import read_geometry
from tests.imports.foam_cases import Form, write_case

#: Beyond what the process has already; each attack needed more, or hours.
MEMORY, CPU_S = 2**29, 60


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    spent = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_S, spent + CPU_S))


def bounded(read: Callable[..., object], *arguments: object) -> object:
    """Return what `read` does, within the limits; a process that is ended breaks the pool."""
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=fork, initializer=_limit) as pool:
        return pool.submit(read, *arguments).result()


NESTED = '".*b" { ' * 30 + "x 1;" + "}" * 30
LONG = "v " + "7" * 90_000 + ";\n" + "".join(f"v{n} $v;\n" for n in range(30_000))
#: A dictionary, and the entry `nu` that is in it; None where it is an error.
DICTIONARIES: dict[str, tuple[str, str | None]] = {
    "spaces before a file without a header": (" " * 45 + "nu 1;", "1"),
    "a pattern that goes back": (f'nu ${"a" * 40};\n"(a+)+b" 1;\nb ${"a" * 40};\nnu 1;', "1"),
    "dictionaries of any name in each other": (f"{NESTED}\na ${'b.' * 60}c;\nnu 1;", "1"),
    "a long value, brought in often": (f"{LONG}nu 1;", None),
}


@pytest.mark.parametrize("name", DICTIONARIES)
def test_a_dictionary_is_read_in_a_time_of_its_length(tmp_path, name) -> None:
    text, value = DICTIONARIES[name]
    (tmp_path / "a").write_text(text)
    if value is not None:
        assert bounded(read_entry, tmp_path / "a", ["nu"]) == value
        return
    with pytest.raises(CaseError):
        bounded(read_entry, tmp_path / "a", ["nu"])


def test_a_packed_file_does_not_fill_the_memory(tmp_path) -> None:
    (tmp_path / "p.gz").write_bytes(gzip.compress(b" " * 2**26) * 32)  # 2 MB for 2 GB
    with pytest.raises(CaseError, match=r"p\.gz unpacks to more than 256 MiB"):
        bounded(read_field, tmp_path / "p")


def test_a_packed_field_of_one_value_is_no_attack(tmp_path) -> None:
    values = np.zeros(10_000_000)
    body = b"internalField nonuniform List<scalar> " + Form(binary=True).values(values) + b";"
    Form(binary=True, packed=True).write(tmp_path / "alpha", "volScalarField", body)
    assert (tmp_path / "alpha.gz").stat().st_size < len(body) / 500
    assert read_field(tmp_path / "alpha").internal.shape == (10_000_000, 1)


def _changed(file: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(case: Path) -> None:
        path = case / "constant/polyMesh" / file
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new, 1))

    return change


#: Form of the files, how they are spoilt, and what the error has to name.
MESHES: dict[str, tuple[bool, Callable[[Path], None], str]] = {
    "a cell of a high number": (
        False,
        _changed("owner", b"(\n0", b"(\n700000000"),
        "has the label 700000000",
    ),
    "a face of very many corners": (
        True,
        _changed(
            "faces", np.array([0, 4, 8], "<i4").tobytes(), np.array([0, 2**30, 8], "<i4").tobytes()
        ),
        "has the label 1073741824",
    ),
    "a list that promises too much": (
        True,
        _changed("points", b"40\n(", b"4000000000000000000\n("),
        "points is cut short",
    ),
    "a patch of more faces than there are": (
        False,
        _changed("boundary", b"nFaces 3", b"nFaces 9000000000"),
        "the patch inlet has 9000000000 faces from 17 on",
    ),
}


@pytest.mark.parametrize("name", MESHES)
def test_what_a_mesh_promises_is_compared_with_its_files(tmp_path, name) -> None:
    binary, change, says = MESHES[name]
    case = write_case(tmp_path / "a", form=Form(binary=binary), change=change)
    with pytest.raises(CaseError, match=says):
        bounded(read_geometry, case)


def test_a_long_line_of_a_log_is_read_once() -> None:
    line = "--> FOAM FATAL ERROR: " + "(openfoam-" * 300_000
    assert bounded(_fatal, line) == line[-3_000_000:]


def _fatal(line: str) -> str:
    log = SolverLog()
    log.read(line)
    return log.fatal
