"""Judge the cases of a version again, by the figures on their records and the present gates.

Nothing is solved. An accepted case that fails now becomes a rejected one, without arrays. A
rejected case that passes now gets its arrays from its archive, where that holds all that was
solved; where it does not (of a transient case only the last time is archived), its verdict is
withdrawn, and the next generation of its design solves it again.
"""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
from botocore.exceptions import BotoCoreError

from simgen.case import CaseFamily, CaseResult, Gate, SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, InputError, StoreError
from simgen.solving.acceptance import judge, rejection
from simgen.solving.convert import convert
from simgen.store.access.content import design_records
from simgen.store.access.fork import CaseFork
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.layout import Schema

Gates = tuple[Gate, ...]
#: An archive that is not there, does not hold what was solved, or is damaged.
_NOT_KEPT = (
    CaseError,
    InputError,
    FileNotFoundError,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    tarfile.TarError,
)


@dataclass(frozen=True)
class Judgement:
    """What the present gates say, by case."""

    num_judged: int
    rejected: Mapping[str, Gates]
    """Accepted cases that fail now"""
    passed: Mapping[str, Gates]
    """Rejected cases that pass now"""
    unjudged: Mapping[str, str]
    """Cases that cannot be judged without their files, and what they lack"""


@dataclass(frozen=True)
class JudgedVersion:
    """The version that a judgement led to; the newest one where it changed nothing."""

    version: str
    restored: tuple[str, ...]
    """Cases that are accepted now, with arrays from their archives"""
    withdrawn: Mapping[str, str]
    """Cases that have to be solved again, and why"""


def judge_version(dataset: Dataset) -> Judgement:
    """Hold the stored figures of each accepted and rejected case against the present gates.

    ProgramError for a mistake in the family's gates.
    """
    from simgen.solving.mistakes import told_as_mistakes  # imports PyFoam

    family = get_family(dataset.schema.family)
    rejected, passed, unjudged, num = {}, {}, {}, 0
    for case in design_records(dataset):
        stored = dataset[case]
        if stored.status not in ("accepted", "rejected"):
            continue
        with told_as_mistakes(case):
            try:
                gates = _judged(family, stored)
            except KeyError as error:
                unjudged[case] = f"no {error}"
                continue
            except (OSError, CaseError):
                unjudged[case] = "gates that read the case's files, which are gone"
                continue
        num += 1
        passes = not rejection(list(gates))
        if stored.status == "accepted" and not passes:
            rejected[case] = gates
        elif stored.status == "rejected" and passes:
            passed[case] = gates
    return Judgement(num, rejected, passed, unjudged)


def apply_judgement(dataset: Dataset, judgement: Judgement) -> JudgedVersion:
    """Put the verdicts on record, and publish a version if one has changed."""
    if not judgement.rejected and not judgement.passed:
        return JudgedVersion(dataset.version, (), {})
    schema = dataset.schema
    writer = DatasetWriter.open(dataset.url, Schema.of(get_family(schema.family)))
    withdrawn = {}
    for case, gates in judgement.passed.items():
        # One fork each: of a case that another writer accepts meanwhile, only its own is dropped.
        fork = writer.fork()
        missing = _restore(dataset[case], gates, fork)
        if missing:
            withdrawn[case] = missing
        writer.commit([fork])
    if judgement.rejected:
        version = writer.reject(judgement.rejected)
    else:
        names = ", ".join(judgement.passed)
        version = writer.publish(f"judged again: {names}", {"judged": list(judgement.passed)})
    restored = tuple(case for case in judgement.passed if case not in withdrawn)
    return JudgedVersion(version, restored, withdrawn)


def _judged(family: CaseFamily, stored: StoredCase) -> Gates:
    """Return the gates; KeyError where a figure is not on record."""
    figures = stored.provenance.get("figures", {})
    # The directory is gone: gates are to need nothing but the figures.
    case = SolvedCase(_point(stored), Path("/nowhere"))
    return tuple(judge(family, case, {name: float(each) for name, each in figures.items()}))


def _restore(stored: StoredCase, gates: Gates, fork: CaseFork) -> str:
    """Write the case as accepted, or its verdict as withdrawn; return why, else nothing."""
    passed = CaseResult(
        _point(stored),
        "accepted",
        gates=gates,
        provenance=stored.provenance,
        split=stored.stated_split,
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            fork.write(passed, convert(SolvedCase(_point(stored), _unpack(stored, Path(folder)))))
        return ""
    except _NOT_KEPT as error:
        missing = f"its fields were not kept ({str(error) or type(error).__name__})"
    except (OSError, BotoCoreError) as error:  # the disk, or the network: it may be there later
        raise StoreError(
            f"case {stored.id} cannot be restored from its archive"
            f" ({getattr(error, 'strerror', None) or error}); run again"
        ) from error
    reason = f"passes the gates now, and {missing}"
    fork.write(replace(passed, status="withdrawn", reason=reason), None)
    return missing


def _unpack(stored: StoredCase, folder: Path) -> Path:
    archive: Any = stored.provenance.get("archive")
    if not archive:
        raise CaseError("there is no archive")
    with fsspec.open(archive, "rb") as packed, tarfile.open(fileobj=packed, mode="r:gz") as files:
        files.extractall(folder, filter="data")
        # The checksum stands behind the end of the archive, at which tarfile stops to read.
        while files.fileobj is not None and files.fileobj.read(1 << 20):
            pass
    return folder / stored.id


def _point(stored: StoredCase) -> DesignPoint:
    schema = stored.dataset.schema
    return DesignPoint(schema.family, schema.family_revision, stored.parameters, stored.settings)
