"""Withdraw accepted cases: the next version keeps only their records, with the reason.

Versions that were published with them stay as they are. A withdrawn case keeps its split, should
its design be solved again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import zarr

from simgen.errors import InputError
from simgen.store.format.case_record import CaseRecord
from simgen.store.format.case_seal import SealingStore
from simgen.store.format.digest import digest_case
from simgen.store.format.tables import append_cases, read_design, read_details

#: Attributes of a case's group.
_ATTRIBUTES = ("parameters", "settings", "family_revision", "status", "reason")
#: Keys of a design record about arrays, and about the place of the line that it belongs to.
_OF_ARRAYS = (
    "num_points",
    "num_snapshots",
    "num_bytes",
    "num_bytes_stored",
    "provenance_at",
    "seal_at",
    "seal",
    "digest",
)


@dataclass(frozen=True)
class Withdrawal:
    """The cases (ids) to withdraw from the dataset at `url`, and why."""

    url: str
    cases: Sequence[str]
    reason: str

    def __post_init__(self) -> None:
        if not self.cases:
            raise InputError("no case to withdraw: name at least one")
        if not self.reason.strip():
            raise InputError(
                "a withdrawal needs a reason, which stays on the cases' records:"
                " give one with --reason"
            )

    @property
    def message(self) -> str:
        """The commit message of the version without these cases."""
        return f"withdrawn: {', '.join(self.cases)}: {self.reason}"

    @property
    def run(self) -> dict[str, Any]:
        """The record of how to make the version again."""
        return {"withdrawn": list(self.cases), "reason": self.reason}

    def apply(self, root: zarr.Group, author: str) -> None:
        """Put the withdrawal on record and remove the cases' arrays.

        InputError for a case that is not accepted. A case that was withdrawn for the same reason
        before stays as it is.
        """
        design = read_design(root)
        self._check(design)
        fresh = [case for case in dict.fromkeys(self.cases) if design[case]["status"] == "accepted"]
        append_cases(
            root, {case: self._withdraw(root, case, design[case], author) for case in fresh}
        )

    def _check(self, design: Mapping[str, Mapping[str, Any]]) -> None:
        for case in self.cases:
            if case not in design:
                raise InputError(
                    f"{self.url} has no case {case}; `courant dataset show` lists them"
                )
            status, reason = design[case]["status"], design[case]["reason"]
            # Done before, by a process that was killed before the version had its name.
            done = {"status": status, "reason": reason} == self._verdict(case)
            if status != "accepted" and not done:
                raise InputError(
                    f"case {case} is {status}, and only accepted cases can be withdrawn: {reason}"
                )

    def _verdict(self, case: str) -> dict[str, str]:
        return {"status": "withdrawn", "reason": self.reason}

    def _withdraw(
        self, root: zarr.Group, case: str, record: Mapping[str, Any], author: str
    ) -> CaseRecord:
        verdict = self._verdict(case)
        details = read_details(root, case, record)
        at = {"at": datetime.now(UTC).isoformat(), "by": author}
        details["provenance"] = {**details["provenance"], verdict["status"]: at}
        sealing = SealingStore(root.store)
        cases = zarr.open_group(sealing, path="cases", mode="r+")
        stored = dict(cases[case].attrs)
        attributes = {name: stored[name] for name in _ATTRIBUTES if name in stored} | verdict
        del cases[case]
        cases.create_group(case, attributes=attributes)
        row = {name: value for name, value in record.items() if name not in _OF_ARRAYS}
        digest = digest_case({**attributes, **details}, [])
        return CaseRecord(
            {**row, **verdict, "digest": digest}, details, {}, sealing.objects_of(case)
        )
