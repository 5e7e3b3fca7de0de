"""Damaged or lost references: no reader takes an older version for the newest."""

import shutil
from pathlib import Path

import pytest

import simgen
from simgen.errors import StoreError
from simgen.store.verify import verify
from simgen.store.versions import BRANCH, collect, open_repository, read_progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add


@pytest.fixture
def three(writer, url):
    """Three versions of one, two and three cases."""
    for number in range(3):
        add(writer, number)
        writer.publish()
    return url


def reference(url, name):
    return Path(url) / "refs" / name / "ref.json"


def sizes(url):
    dataset = simgen.open_dataset(url)
    return [len(simgen.open_dataset(url, version.name)) for version in dataset.versions()]


def fails(match, *attempts):
    for attempt in attempts:
        with pytest.raises(StoreError, match=match) as error:
            attempt()
        assert "\n" not in str(error.value) and "restore the store from a copy" in str(error.value)


DAMAGES = pytest.mark.parametrize(
    "damage",
    [
        lambda path: shutil.rmtree(path.parent),
        lambda path: path.write_text(""),
        lambda path: path.write_text('{"snapshou":"x"}'),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["removed", "emptied", "another key", "a folder"],
)


@DAMAGES
@pytest.mark.parametrize("name", ["v2", "v3"])
def test_a_version_whose_tag_is_lost_is_found_in_the_history_and_stays_itself(three, damage, name):
    before = {each.name: each.snapshot_id for each in simgen.open_dataset(three).versions()}
    if name == "v3":
        shutil.rmtree(reference(three, "tag.v1").parent)
    damage(reference(three, f"tag.{name}"))
    assert (simgen.open_dataset(three).version, read_progress(three).version) == ("v3", "v3")
    assert sizes(three) == [1, 2, 3]
    add(DatasetWriter.open(three, SCHEMA), 3)
    assert DatasetWriter.open(three, SCHEMA).publish() == "v4"
    assert all(reference(three, f"tag.v{number}").exists() for number in (1, 2, 3, 4))
    after = {each.name: each.snapshot_id for each in simgen.open_dataset(three).versions()}
    assert after.items() >= before.items()
    assert verify(simgen.open_dataset(three)).findings == []


@DAMAGES
def test_a_branch_that_is_lost_ends_readers_and_writers_and_makes_no_new_dataset(three, damage):
    damage(reference(three, "branch.main"))
    fails(
        "branch main.* is damaged",
        lambda: simgen.open_dataset(three),
        lambda: DatasetWriter.open(three, SCHEMA),
    )


def test_a_creation_that_was_cut_off_is_made_again(url, monkeypatch):
    """As by a disk that was full between the first commit and its branch."""
    monkeypatch.setattr("simgen.store.versions.CREATION_S", 0.1)
    open_repository(url, create=True)
    shutil.rmtree(Path(url) / "refs")
    (first,) = (Path(url) / "snapshots").iterdir()
    first.with_name(f"{first.name}#1").write_bytes(b"")
    fails("branch main.* is damaged", lambda: simgen.open_dataset(url))
    made = DatasetWriter.open(url, SCHEMA)
    add(made, 0)
    assert made.publish() == "v1"
    assert verify(simgen.open_dataset(url)).findings == []


def test_a_newest_commit_that_is_lost_is_an_error_and_no_older_version_is_taken_for_it(three):
    repository = open_repository(three)
    (Path(three) / "snapshots" / repository.lookup_branch(BRANCH)).write_bytes(b"")
    fails(
        "newest commit of branch main is damaged",
        lambda: simgen.open_dataset(three),
        lambda: DatasetWriter.open(three, SCHEMA),
        lambda: collect(three),
    )
    assert len(simgen.open_dataset(three, "v2")) == 2


def test_a_tag_on_a_commit_that_was_never_published_is_one_line(writer, url):
    add(writer, 0)
    repository = open_repository(url)
    repository.create_tag("v1", snapshot_id=repository.lookup_branch("main"))
    fails("v1: the history is damaged", lambda: simgen.open_dataset(url))
