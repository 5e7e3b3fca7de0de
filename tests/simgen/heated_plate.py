"""The family of docs/families/a-transient-family.md, word for word."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.errors import MeshError, SolverError
from simgen.foam.field import read_field
from simgen.foam.log import SolverLog
from simgen.foam.mesh import time_directories
from simgen.foam.run import run_application
from simgen.meshing import mesh_gates, write_dictionaries
from simgen.quantities import CaseFields, Quantity

COLD = 293.0


def mean_temperature(case: CaseFields) -> float:
    return float(np.mean(case.cells("temperature")[-1]))


class HeatedPlate(CaseFamily):
    name = "heated-plate"
    revision = 1
    title = "2D plate, heated from below"
    dimension = 2
    transient = True  # keep every time that is written
    application = "laplacianFoam"
    preparation = ("blockMesh",)
    design_space = DesignSpace(
        (
            Parameter("heater_temperature", "K", 320.0, 400.0, "of the heated edge"),
            Parameter("heater_length", "m", 0.2, 0.8, "of the heated edge"),
        )
    )
    settings_space = DesignSpace(
        (
            Parameter("end_time", "s", 0.1, 100.0, "simulated time"),
            Parameter("snapshot_interval", "s", 0.05, 10.0, "between stored times"),
            Parameter("time_step", "s", 0.001, 1.0, "of the solver"),
            Parameter("mesh_size", "m", 0.01, 0.25, "cell size"),
        )
    )
    presets: Mapping[str, Mapping[str, float]] = {
        "quick": {"end_time": 6.0, "snapshot_interval": 0.3, "time_step": 0.05, "mesh_size": 0.1}
    }
    patches: Mapping[str, str] = {"heater": "heater", "cooled": "cooled", "insulated": "insulated"}
    fields = (Field("temperature", "K", ("T",), "T"),)
    quantities = (
        Quantity(
            "mean_temperature",
            "K",
            "over the cells, at the end",
            mean_temperature,
            ("temperature.T",),
        ),
    )

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        size, length = point.settings["mesh_size"], point.parameters["heater_length"]
        cells = {
            "cells": round(1 / size),
            "left_cells": max(1, round(length / size)),
            "right_cells": max(1, round((1 - length) / size)),
        }
        times = {name: point.settings[name] for name in self.presets["quick"]}
        values = {**point.parameters, **times, **cells, "cold": COLD, "diffusivity": 0.05}
        write_dictionaries(Path(__file__).parent / "heated_plate", directory, values)
        try:
            run_application("blockMesh", directory)
        except SolverError as error:
            raise MeshError(str(error), error.log_tail) from error

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        _, last = time_directories(case.directory)[-1]
        return {"mean_temperature": float(np.mean(read_field(last / "T").internal))}

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        hottest = case.point.parameters["heater_temperature"]
        return [
            *mesh_gates(figures),
            Gate.at_most("mean temperature", figures["mean_temperature"], hottest, "K"),
        ]
