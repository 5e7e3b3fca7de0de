"""Remove what cases have left on the scratch disks of a cluster's nodes."""

from __future__ import annotations

from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from flows.settings import load_settings
from simgen.solving.case_lock import forget_case

#: For all nodes together.
FORGET_S = 30.0


def forget_on_other_nodes(cases: list[str]) -> None:
    """Remove the notes of committed cases from the scratch disks of all nodes but this one.

    Where a node does not answer, its notes go with the next case that it takes.
    """
    here = ray.get_runtime_context().get_node_id()
    others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    forget = ray.remote(num_cpus=0, max_retries=0)(_forget_here)
    asked = [
        forget.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            cases
        )
        for node in others
    ]
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=FORGET_S)


def _forget_here(cases: list[str]) -> None:
    # The scratch disk of the node that this runs on, by its environment.
    scratch = Path(load_settings().scratch)
    for case in cases:
        forget_case(case, scratch)
