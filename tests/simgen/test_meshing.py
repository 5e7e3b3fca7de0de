"""What gmsh leaves behind in the process that it runs in, and what checkMesh has to tell."""

import signal
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from simgen.cases import get_family
from simgen.errors import MeshError
from simgen.foam.mesh import read_boundary
from simgen.foam.run import find_openfoam
from simgen.meshing import gmsh_model, set_patch_types, write_dictionaries


@pytest.mark.parametrize("in_thread", [False, True], ids=["main thread", "another thread"])
def test_a_connection_that_breaks_after_meshing_does_not_end_the_process(in_thread):
    def mesh():
        with gmsh_model("square") as gmsh:
            gmsh.model.occ.addRectangle(0, 0, 0, 1, 1)

    ThreadPoolExecutor(1).submit(mesh).result() if in_thread else mesh()
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(BrokenPipeError):
        ours.send(b"anybody there?")
    ours.close()


def test_gmsh_keeps_its_log_for_the_error_and_prints_nothing(capfd):
    with pytest.raises(MeshError) as found, gmsh_model("plate") as gmsh:
        gmsh.logger.write("one line", "info")
        raise ValueError("no")
    assert found.value.log_tail == "Info: one line"
    assert capfd.readouterr().out == ""


@pytest.mark.openfoam
def test_a_mesh_leaves_nothing_in_the_temporary_folder(tmp_path, monkeypatch):
    """Another user may have made a folder of a known name there, with links to this one's files."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "case").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    family = get_family("cylinder-flow")
    find_openfoam()
    point = family.point(family.design_space.sample(1)[0], family.settings("trial"))
    family.write_case(point, tmp_path / "case")
    patches = read_boundary(tmp_path / "case/constant/polyMesh/boundary")
    types = {"frontAndBack": "empty", "walls": "wall", "cylinder": "wall"}
    types |= {"inlet": "patch", "outlet": "patch"}
    assert {name: patch.type for name, patch in patches.items()} == types
    assert list((tmp_path / "temporary").iterdir()) == []


BOUNDARY = """FoamFile { version 2.0; format binary; class polyBoundaryMesh; object boundary; }
2
(
    in  { type patch; physicalType patch; nFaces 4; startFace 10; }
    inner
    {
        nFaces 2;
        type            patch;
        physicalType    patch;
        startFace       14;
    }
)
"""


def test_patches_get_their_types_by_their_whole_names(tmp_path):
    boundary = tmp_path / "boundary"
    boundary.write_text(BOUNDARY)
    with pytest.raises(MeshError, match="a patch inner"):
        set_patch_types(boundary, {"in": "patch"})
    set_patch_types(boundary, {"inner": "wall", "in": "cyclicAMI"})
    found = {n: (of.type, of.start, of.size) for n, of in read_boundary(boundary).items()}
    assert found == {"in": ("cyclicAMI", 10, 4), "inner": ("wall", 14, 2)}


def test_words_and_whole_numbers_are_written_as_they_are_and_others_with_all_digits(tmp_path):
    (tmp_path / "of").mkdir()
    (tmp_path / "of/file").write_text("a |-a-|; b |-b-|; c |-c-|;")
    values = {"a": 3, "b": "three", "c": 0.1 + 0.2}
    write_dictionaries(tmp_path / "of", tmp_path / "to", values)
    assert (tmp_path / "to/file").read_text().strip() == "a 3; b three; c 0.30000000000000004;"
