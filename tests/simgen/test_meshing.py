"""What gmsh leaves behind in the process that it runs in, and what checkMesh has to tell."""

import signal
import socket
import threading

import pytest

from simgen.errors import MeshError
from simgen.foam.log import SolverLog
from simgen.meshing import check_mesh, gmsh_model


@pytest.mark.parametrize("in_thread", [False, True], ids=["main thread", "another thread"])
def test_a_connection_that_breaks_after_meshing_does_not_end_the_process(in_thread):
    def mesh():
        with gmsh_model("square") as gmsh:
            gmsh.model.occ.addRectangle(0, 0, 0, 1, 1)

    if in_thread:
        worker = threading.Thread(target=mesh)
        worker.start()
        worker.join()
    else:
        mesh()
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(BrokenPipeError):
        ours.send(b"anybody there?")
    ours.close()


def test_a_mesh_that_checkmesh_told_nothing_of_is_an_error_of_its_case(tmp_path, monkeypatch):
    def say_nothing(application, directory, time_limit_s):
        (directory / f"{application}.logfile").write_text("Create time\n")
        return SolverLog(), 0.0

    monkeypatch.setattr("simgen.foam.run.run_application", say_nothing)
    with pytest.raises(MeshError, match="checkMesh did not tell num_cells, max_non_orthogonality"):
        check_mesh(tmp_path)
