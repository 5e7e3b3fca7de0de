"""What gmsh leaves behind in the process that it runs in."""

import signal
import socket
import threading

import pytest

from simgen.meshing import gmsh_model


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
