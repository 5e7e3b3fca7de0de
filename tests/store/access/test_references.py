"""Damaged or lost references to versions: said by every reader, no obstacle to publishing, mended
by `repair`.
"""

import json
import shutil
from pathlib import Path

import icechunk
import pytest

import simgen
from simgen.audit.collect import collect
from simgen.audit.repair import repair
from simgen.audit.verify import verify
from simgen.errors import InputError, StoreError
from simgen.store.access import versions
from simgen.store.access.reader import open_unchecked
from simgen.store.access.repository import open_repository
from simgen.store.access.writer import DatasetWriter
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
def test_a_damaged_newest_tag_never_serves_an_older_version(three, damage):
    damage(reference(three, "tag.v3"))
    for version in (None, "v3"):
        with pytest.raises(
            StoreError, match=f"v3 was published, and its tag.*courant dataset repair {three}"
        ) as error:
            simgen.open_dataset(three, version)
        assert "\n" not in str(error.value)
    assert len(simgen.open_dataset(three, "v2")) == 2
    places = {
        finding.place: finding.problem for finding in verify(open_unchecked(three, "v2")).findings
    }
    assert "v3 was published, and its tag is missing or damaged" in places["versions"]
    assert repair(three).done == ["v3: its tag was made again"]
    assert len(simgen.open_dataset(three)) == 3
    assert verify(simgen.open_dataset(three)).findings == []


@DAMAGES
def test_publishing_goes_on_after_a_lost_tag_in_between_and_says_how_to_mend_a_lost_newest(
    three, damage
):
    damage(reference(three, "tag.v2"))
    writer = DatasetWriter.open(three, SCHEMA)
    add(writer, 3)
    assert writer.publish() == "v4"
    with pytest.warns(UserWarning, match="v2 was published, and its tag is missing or damaged"):
        assert len(simgen.open_dataset(three)) == 4
    damage(reference(three, "tag.v4"))
    add(writer, 4)
    with pytest.raises(StoreError, match=r"v4 was published.*courant dataset repair"):
        writer.publish()
    repair(three)
    assert writer.publish() == "v5"
    assert [len(simgen.open_dataset(three, f"v{number}")) for number in range(1, 6)] == [
        1,
        2,
        3,
        4,
        5,
    ]


@DAMAGES
def test_a_dataset_whose_branch_is_lost_is_mended_with_all_that_was_committed(three, damage):
    add(DatasetWriter.open(three, SCHEMA), 3)
    damage(reference(three, "branch.main"))
    for attempt in (lambda: simgen.open_dataset(three), lambda: DatasetWriter.open(three, SCHEMA)):
        with pytest.raises(
            StoreError, match=r"branch main is missing or damaged.*courant dataset repair"
        ):
            attempt()
    assert "branch main was lost" in repair(three).done[0]
    writer = DatasetWriter.open(three, SCHEMA)
    assert set(writer.known()) == {make_result(number).id for number in range(4)}
    assert writer.publish() == "v4"


def test_versions_of_a_release_without_second_references_are_mended_from_their_commits(three):
    for number in (1, 2, 3):
        shutil.rmtree(reference(three, f"branch.v{number}").parent)
    reference(three, "tag.v3").write_text("")
    with pytest.raises(StoreError, match="v3 was published"):
        simgen.open_dataset(three)
    assert repair(three).left == []
    assert len(simgen.open_dataset(three)) == 3
    assert set(open_repository(three).list_branches()) == {"main", "v1", "v2", "v3"}


def test_a_tag_that_names_another_versions_commit_is_told_and_mended(three):
    other = json.loads(reference(three, "tag.v1").read_text())
    reference(three, "tag.v3").write_text(json.dumps(other))
    with pytest.raises(
        StoreError, match=r"v3: its tag or snapshot is damaged \(it names the commit of v1\)"
    ):
        simgen.open_dataset(three)
    assert repair(three).done == ["v3: its tag was made again"]
    assert len(simgen.open_dataset(three)) == 3


def test_a_tag_on_a_commit_that_was_never_published_is_one_line(writer, url):
    add(writer, 0)
    repository = open_repository(url)
    repository.create_tag("v1", snapshot_id=repository.lookup_branch("main"))
    with pytest.raises(StoreError, match="its record has no digest: it was not published") as error:
        simgen.open_dataset(url)
    assert "\n" not in str(error.value)


def test_a_publication_that_was_cut_off_before_its_second_reference_is_completed_by_the_next(
    three, monkeypatch
):
    shutil.rmtree(reference(three, "branch.v3").parent)
    assert len(simgen.open_dataset(three)) == 3
    writer = DatasetWriter.open(three, SCHEMA)
    add(writer, 3)
    assert writer.publish() == "v4"
    assert {"v3", "v4"} <= set(open_repository(three).list_branches())


def test_nothing_is_collected_while_a_version_has_lost_its_tag(three):
    before = {path for path in Path(three).rglob("*") if path.is_file()}
    reference(three, "tag.v2").unlink()
    with pytest.raises(StoreError, match=r"v2 was published.*courant dataset repair"):
        collect(three)
    assert {path for path in Path(three).rglob("*") if path.is_file()} == before - {
        reference(three, "tag.v2")
    }


def test_a_whole_dataset_is_left_as_it_is_and_nothing_is_not_mended(three, tmp_path):
    before = {path: path.read_bytes() for path in Path(three).rglob("*") if path.is_file()}
    assert repair(three) == type(repair(three))()
    assert {path: path.read_bytes() for path in Path(three).rglob("*") if path.is_file()} == before
    with pytest.raises(InputError, match="there is no dataset at"):
        repair(str(tmp_path / "nowhere"))


def test_a_version_whose_commit_is_gone_is_left_and_named(three):
    commit = open_repository(three).lookup_tag("v2")
    (Path(three) / "snapshots" / commit).unlink()
    assert repair(three).left == ["v2: no commit of it can be read; restore the store from a copy"]
    assert isinstance(open_repository(three), icechunk.Repository)


@pytest.mark.end_to_end
def test_references_on_s3_are_told_and_mended(s3):
    import s3fs

    url = f"{s3.url}/references/cylinder-flow"
    writer = DatasetWriter.open(url, SCHEMA)
    for number in range(2):
        add(writer, number)
        writer.publish()
    files = s3fs.S3FileSystem(endpoint_url=s3.endpoint, skip_instance_cache=True)
    for name in ("tag.v2", "branch.main"):
        files.pipe_file(f"{url}/refs/{name}/ref.json", b"{")
        with pytest.raises(StoreError, match="courant dataset repair"):
            simgen.open_dataset(url)
        assert len(repair(url).done) == 1
        assert len(simgen.open_dataset(url)) == 2
    add(DatasetWriter.open(url, SCHEMA), 2)
    assert DatasetWriter.open(url, SCHEMA).publish() == "v3"


def test_a_version_that_is_published_while_they_are_read_is_no_lost_one(
    writer, url, three, monkeypatch
):
    add(writer, 3)
    listed, list_names = [], versions._versions_of

    def publish_after_the_first(references, url):
        names = list_names(references, url)
        listed.append(names)
        if len(listed) == 1:
            monkeypatch.undo()
            assert writer.publish() == "v4"
            monkeypatch.setattr(versions, "_versions_of", publish_after_the_first)
        return names

    monkeypatch.setattr(versions, "_versions_of", publish_after_the_first)
    assert simgen.open_dataset(url).version == "v4"
    # As above, between the list of tags and the look at whether there is another one.
    add(writer, 4)
    monkeypatch.undo()
    look = versions._is_there

    def publish_before_the_first(repository, url, name):
        monkeypatch.undo()
        assert writer.publish() == "v5"
        return look(repository, url, name)

    monkeypatch.setattr(versions, "_is_there", publish_before_the_first)
    assert simgen.open_dataset(url).version == "v5"
