"""Damaged or lost references: no reader takes an older version for the newest, and writers mend."""

import shutil
from pathlib import Path

import pytest

import simgen
from simgen.errors import StoreError
from simgen.store import versions
from simgen.store.verify import verify
from simgen.store.versions import BRANCH, collect, open_repository, read_progress
from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add, make_result


@pytest.fixture
def three(writer, url):
    """Three versions of one, two and three cases."""
    for number in range(3):
        add(writer, number)
        writer.publish()
    return url


def reference(url, name):
    return Path(url) / "refs" / name / "ref.json"


def tip_of(url):
    return Path(url) / "snapshots" / open_repository(url).lookup_branch(BRANCH)


def sizes(url):
    dataset = simgen.open_dataset(url)
    return [len(simgen.open_dataset(url, version.name)) for version in dataset.versions()]


DAMAGES = pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: shutil.rmtree(path.parent),
        lambda path: path.write_text(""),
        lambda path: path.write_text('{"snapshou":"x"}'),
        lambda path: path.write_text(path.read_text()[:20]),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["removed", "removed with its folder", "emptied", "another key", "truncated", "a folder"],
)


@DAMAGES
@pytest.mark.parametrize("name", ["v2", "v3"])
def test_a_version_whose_tag_is_lost_is_found_in_the_history_and_stays_itself(three, damage, name):
    before = {each.name: each.snapshot_id for each in simgen.open_dataset(three).versions()}
    damage(reference(three, f"tag.{name}"))
    assert simgen.open_dataset(three).version == "v3"
    assert sizes(three) == [1, 2, 3]
    assert read_progress(three).version == "v3"
    (problem,) = simgen.open_dataset(three).problems()
    assert f"{name} was published, and its tag is missing" in problem
    assert f"courant dataset gc {three}" in problem
    (finding,) = verify(simgen.open_dataset(three)).findings
    assert finding.problem == problem
    writer = DatasetWriter.open(three, SCHEMA)  # which makes it again
    assert simgen.open_dataset(three).problems() == []
    add(writer, 3)
    assert writer.publish() == "v4"
    after = {each.name: each.snapshot_id for each in simgen.open_dataset(three).versions()}
    assert after.items() >= before.items()
    assert verify(simgen.open_dataset(three)).findings == []


def test_all_tags_may_be_lost(three):
    for number in (1, 2, 3):
        shutil.rmtree(reference(three, f"tag.v{number}").parent)
    add(DatasetWriter.open(three, SCHEMA), 3)
    for number in (1, 2, 3):
        shutil.rmtree(reference(three, f"tag.v{number}").parent)
    assert simgen.open_dataset(three).version == "v3"
    assert sizes(three) == [1, 2, 3]


@DAMAGES
def test_a_dataset_whose_branch_is_lost_goes_on_with_all_that_was_committed(three, damage):
    add(DatasetWriter.open(three, SCHEMA), 3)
    damage(reference(three, "branch.main"))
    with pytest.raises(StoreError, match=f"branch main is missing.*courant dataset gc {three}"):
        simgen.open_dataset(three)
    writer = DatasetWriter.open(three, SCHEMA)
    assert set(writer.known()) == {make_result(number).id for number in range(4)}
    assert writer.publish() == "v4"
    assert sizes(three) == [1, 2, 3, 4]


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_a_newest_commit_that_is_lost_is_reported_and_the_one_before_it_goes_on(three, damage):
    writer = DatasetWriter.open(three, SCHEMA)
    add(writer, 3)
    add(writer, 4)
    damage(tip_of(three))
    with pytest.raises(StoreError, match=f"newest commit cannot be read.*dataset gc {three}"):
        simgen.open_dataset(three)
    assert len(simgen.open_dataset(three, "v2")) == 2
    writer = DatasetWriter.open(three, SCHEMA)
    assert set(writer.known()) == {make_result(number).id for number in range(4)}
    add(writer, 4)
    assert writer.publish() == "v4"
    assert verify(simgen.open_dataset(three)).findings == []


def test_a_version_whose_commit_is_lost_is_neither_served_nor_published_again(three):
    tip_of(three).write_bytes(b"")
    for attempt in (
        lambda: simgen.open_dataset(three),
        lambda: DatasetWriter.open(three, SCHEMA),
        lambda: collect(three),
    ):
        with pytest.raises(StoreError, match=r"v3.*restore the store from a copy") as error:
            attempt()
        assert "\n" not in str(error.value)
    assert len(simgen.open_dataset(three, "v2")) == 2


def test_commits_that_go_in_a_circle_are_damage_and_no_endless_search(three):
    """A later commit's content in place of an earlier one's names its successor as its parent."""
    ids = {each.name: each.snapshot_id for each in simgen.open_dataset(three).versions()}
    folder = Path(three) / "snapshots"
    (folder / ids["v1"]).write_bytes((folder / ids["v2"]).read_bytes())
    for attempt in (lambda: simgen.open_dataset(three, "v1"), lambda: collect(three)):
        with pytest.raises(StoreError, match="its commits go in a circle"):
            attempt()
    assert len(simgen.open_dataset(three)) == 3


def test_a_tag_on_a_commit_that_was_never_published_is_one_line(writer, url):
    add(writer, 0)
    repository = open_repository(url)
    repository.create_tag("v1", snapshot_id=repository.lookup_branch("main"))
    with pytest.raises(StoreError, match="v1: the history is damaged") as error:
        simgen.open_dataset(url)
    assert "\n" not in str(error.value)


@pytest.mark.end_to_end
def test_references_on_s3_are_found_and_mended(s3):
    import s3fs

    url = f"{s3.url}/references/cylinder-flow"
    writer = DatasetWriter.open(url, SCHEMA)
    for number in range(2):
        add(writer, number)
        writer.publish()
    files = s3fs.S3FileSystem(endpoint_url=s3.endpoint, skip_instance_cache=True)
    files.pipe_file(f"{url}/refs/tag.v2/ref.json", b"{")
    assert sizes(url) == [1, 2]
    add(DatasetWriter.open(url, SCHEMA), 2)
    assert simgen.open_dataset(url).problems() == []
    assert DatasetWriter.open(url, SCHEMA).publish() == "v3"
    files.pipe_file(f"{url}/refs/branch.main/ref.json", b"{")
    with pytest.raises(StoreError, match=f"courant dataset gc {url}"):
        simgen.open_dataset(url)
    assert DatasetWriter.open(url, SCHEMA).publish() == "v3"
    assert sizes(url) == [1, 2, 3]


def test_a_version_that_is_published_while_the_history_is_read_is_found_or_not_yet(
    three, monkeypatch
):
    writer = DatasetWriter.open(three, SCHEMA)
    add(writer, 3)
    read = versions.newest_in_history

    def publish_after(repository, commit_id):
        found = read(repository, commit_id)
        monkeypatch.undo()
        assert writer.publish() == "v4"
        return found

    monkeypatch.setattr(versions, "newest_in_history", publish_after)
    assert len(simgen.open_dataset(three)) == 4
