"""The family of docs/families/a-new-family.md, word for word."""

from collections.abc import Mapping
from pathlib import Path

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.meshing import gmsh_model, import_mesh, write_dictionaries


class LidCavity(CaseFamily):
    name = "lid-cavity"
    # part of each design point's id: raise it when geometry, boundary conditions or numerics change
    revision = 1
    title = "2D lid-driven cavity"
    dimension = 2
    transient = False  # keep the last time only
    application = "icoFoam"
    design_space = DesignSpace(
        (
            Parameter("height", "m", 0.5, 2.0, "of the cavity, which is 1 m wide"),
            Parameter("lid_velocity", "m/s", 0.5, 2.0, "of the upper wall"),
        )
    )
    flow_parameters = ("lid_velocity",)  # designs that differ in it alone share a mesh
    settings_space = DesignSpace(
        (
            Parameter("end_time", "s", 0.01, 100.0, "simulated time"),
            Parameter("mesh_size", "m", 0.01, 0.5, "cell size"),
        )
    )
    presets: Mapping[str, Mapping[str, float]] = {"trial": {"end_time": 2.0, "mesh_size": 0.1}}
    # OpenFOAM's patch -> patch kind. Each kind gets a column of the distance field, in this order.
    patches: Mapping[str, str] = {"movingWall": "lid", "walls": "wall"}
    fields = (
        Field("velocity", "m/s", ("x", "y"), "U"),
        Field("kinematic_pressure", "m2/s2", ("p",), "p"),
    )

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        values = {**point.parameters, "end_time": point.settings["end_time"], "viscosity": 0.05}
        write_dictionaries(Path(__file__).parent / "lid_cavity", directory, values)
        with gmsh_model("lid-cavity") as gmsh:
            model, height = gmsh.model, point.parameters["height"]
            plan = model.occ.addRectangle(0, 0, 0, 1, height)
            sides = model.occ.extrude([(2, plan)], 0, 0, 0.1, numElements=[1], recombine=True)
            model.occ.synchronize()
            # extrude lists the far end, the volume, and the sides in the order of the rectangle's:
            # bottom, right, top, left.
            far, volume, bottom, right, top, left = (tag for _, tag in sides)
            model.addPhysicalGroup(3, [volume], name="fluid")
            model.addPhysicalGroup(2, [top], name="movingWall")
            model.addPhysicalGroup(2, [bottom, right, left], name="walls")
            model.addPhysicalGroup(2, [plan, far], name="frontAndBack")
            model.mesh.setRecombine(2, plan)
            gmsh.option.setNumber("Mesh.MeshSizeMax", point.settings["mesh_size"])
            model.mesh.generate(3)
            gmsh.write(str(directory / "mesh.msh"))
        import_mesh(
            directory / "mesh.msh",
            directory,
            {"movingWall": "wall", "walls": "wall", "frontAndBack": "empty"},
        )

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        return [
            Gate.at_most("mesh checks failed", figures["failed_checks"], 0),
            Gate.at_most("maximum Courant number", figures["max_courant"], 1.0),
        ]
