"""What the flows take from their environment and their options."""

from pathlib import Path

import pytest

from flows.settings import absolute
from simgen.errors import InputError


@pytest.mark.parametrize("url", ["s3:", "s3:/", "s3://", "s3:///store", "s3:/bucket/store"])
def test_a_bucket_that_is_missing_does_not_become_a_local_folder(url: str) -> None:
    with pytest.raises(InputError, match=f"{url} names no bucket; write s3://bucket/prefix"):
        absolute(url)


def test_folders_become_absolute_and_urls_stay() -> None:
    assert absolute("store") == str(Path.cwd() / "store")
    assert absolute("s3://bucket/prefix") == "s3://bucket/prefix"
