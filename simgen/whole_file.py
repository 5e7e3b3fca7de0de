"""Write a file that is complete under its name, or as it was before; also through a power cut.

with whole_file(path) as part:
    part.write_bytes(content)
"""

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import fsspec

from simgen.errors import InputError

#: How names of half-written files begin: a process that was killed leaves them behind.
PARTIAL = ".partial-"


def local_path(url: str) -> Path:
    """Return the absolute path of a local URL; InputError for the home of an unknown user."""
    try:
        return Path(url).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"{url} is no path on this machine: {error}") from error


def cache_folder(name: str) -> Path:
    """Return the folder of a kind of cached files, ~/.cache/courant/<name> or in XDG_CACHE_HOME."""
    return local_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "courant" / name


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield where to write; in the end that file, of the same suffix, takes the name `path`.

    It is written to the disk first. After an error it is removed, and `path` is as before.
    """
    part = path.with_name(f"{PARTIAL}{uuid.uuid4().hex}{path.suffix}")
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def pack_folder(folder: Path, url: str, left_out: Collection[str] = ()) -> None:
    """Write a folder as a .tar.gz that is complete or absent, without these paths in it.

    Paths begin with the folder's name. OSError where that fails.
    """
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as archive:
            archive.add(folder, folder.name, filter=lambda of: None if of.name in left_out else of)
        packed.seek(0)
        if "://" in url:
            with fsspec.open(url, "wb") as target:
                shutil.copyfileobj(packed, target, 1 << 20)
        else:
            Path(url).parent.mkdir(parents=True, exist_ok=True)
            with whole_file(Path(url)) as part, part.open("wb") as target:
                shutil.copyfileobj(packed, target, 1 << 20)


def npz_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Return arrays as a compressed NumPy file, .npz."""
    import numpy as np  # which the command line need not wait for

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def not_there(url: str) -> str:
    """Describe a place that is missing, with one beside it of nearly its name; else nothing."""
    with contextlib.suppress(OSError):
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        above, _, name = path.rstrip("/").rpartition("/")
        if not files.exists(path):
            beside = files.ls(above, detail=False) if files.isdir(above) else []
            names = get_close_matches(name, [each.rpartition("/")[2] for each in beside], 1)
            near = "".join(f"; did you mean {url.removesuffix(name)}{each}?" for each in names)
            return f"{url} is not there{near}"
    return ""
