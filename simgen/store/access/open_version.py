"""Open one version of a dataset: its references, tables and seals."""

from __future__ import annotations

import functools
from typing import Any

import zarr

from simgen.errors import SimgenError, StoreError
from simgen.store.access.repository import explain, open_repository
from simgen.store.access.versions import Versions
from simgen.store.format import schema_1
from simgen.store.format.damage import DamageError, describe_metadata_damage, panics_as_errors
from simgen.store.format.layout import Schema
from simgen.store.format.tables import SealReader, parse_design, parse_splits
from simgen.store.format.version_seal import check_version, read_sealed_tables


class OpenVersion:
    """An immutable version, opened at its snapshot: what its cases are read from."""

    def __init__(
        self, url: str, version: str | None = None, *, snapshot_id: str | None = None
    ) -> None:
        self.url = url
        repository = self._repository = open_repository(url)
        self._versions = Versions(repository, url)
        self.version = self._versions.choose(version)
        self.info = self._versions.read(self.version)
        self.snapshot_id = self.info.snapshot_id
        if snapshot_id not in (None, self.snapshot_id):
            raise StoreError(
                f"{url}: {self.version} is not the version that was opened before;"
                " was the store replaced?"
            )
        try:
            with panics_as_errors():
                session = repository.readonly_session(snapshot_id=self.snapshot_id)
                self._root = zarr.open_group(session.store, mode="r")
                self.schema = Schema.from_attrs(self._root.attrs, url)
                self._tables = (
                    {} if schema_1.is_schema_1(self._root) else read_sealed_tables(self._root)
                )
                self._records, self._members = self._read_tables()
        except SimgenError:
            raise
        except Exception as error:
            # Icechunk, Zarr and the schema may fail in any way on bytes that are not those written.
            raise self._unreadable(error) from error

    @functools.cached_property
    def _seals(self) -> SealReader:
        return SealReader(self._root)

    def _read_tables(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        if not self._tables:
            return schema_1.read_design(self._root), schema_1.read_splits(self._root)
        design, splits = self._tables["design"], self._tables["splits"]
        return parse_design(design, self._root), parse_splits(splits, self._root)

    def check(self) -> None:
        """Check the version's tables against its seal; StoreError if they differ.

        Every opening does this.
        """
        commit = {**self.info.metadata, "message": self.info.message}
        try:
            check_version(self._root, self._tables, self._records, self._members, commit)
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> StoreError:
        what = describe_metadata_damage(error)
        if what is None:
            return StoreError(explain(self.url, str(error)))
        return DamageError(what, self.url, self.version, f"snapshot {self.snapshot_id}")
