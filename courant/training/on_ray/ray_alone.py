"""Train with one worker on an embedded Ray: in a task of Ray, without Ray Train.

Ray Train places workers, joins them and starts them again, from a controller in a process of its
own that takes five core-seconds to start. One worker on one machine needs no more than a task that
is tried again; and the task takes a process that Ray has already started, which may have imported
torch while other things were starting (`begin_imports`).
"""

from __future__ import annotations

import importlib
from typing import Any

import ray
import torch
from ray.exceptions import RayError

from courant.cpu_arithmetic import use_threads
from courant.runs.standing import InUseError
from simgen.machine import usable_cores

#: The import under way in a worker; without a reference to it Ray might give it up.
_importing: list[ray.ObjectRef] = []


def begin_imports() -> None:
    """Have a worker import what training needs, while this process does something else."""
    if not _importing:
        _importing.append(_import_training.remote())


def train_alone(config: dict[str, Any], use_gpu: bool, num_retries: int) -> None:
    """Run the whole fit in a worker, and again in another one after an error or its death.

    Raises the last error of Ray's. A worker that trains is ended where this is interrupted.
    """
    task = fit_alone.options(num_gpus=1) if use_gpu else fit_alone
    for left in reversed(range(1 + num_retries)):
        running = task.remote(config)
        try:
            ray.get(running)
            return
        except RayError as error:
            # Ray's error of a task is of the class of its cause, too.
            if isinstance(error, InUseError) or not left:
                raise
        except BaseException:
            ray.cancel(running, force=True)
            raise


# Tries again are counted above: Ray would start a worker without end that takes too much memory.
@ray.remote(num_cpus=1, max_retries=0)
def fit_alone(config: dict[str, Any]) -> None:
    """Run the fit; a process has this name while it trains."""
    from courant.training.on_ray.recorded_fit import fit_on_record

    use_threads(usable_cores())
    device = torch.device("cuda" if ray.get_gpu_ids() else "cpu")
    fit_on_record(config, device, is_first=True)


@ray.remote(num_cpus=1, max_retries=0)
def _import_training() -> None:
    importlib.import_module("courant.training.on_ray.recorded_fit")
