"""Print what the paper's three datasets cost on Azure, as the table of docs/operations.md.

    python infra/azure/costs.py
    python infra/azure/costs.py --gpu-node 3.90 --solving-node 0.75 --spot 0.3

Prices are per hour, in the currency that you give them in. The defaults are list prices of a region
in the United States in US dollars, approximate and entered by hand: take yours from Azure's
price calculator. The work is

- training: the paper's hours on one A100 of this very size (its tables tab:cf-hparams,
  tab:hvac-hparams, tab:pump-hparams), of its own implementation;
- solving: this project's seconds of a core for a case of the preset `paper`, rounded up. They were
  measured on one core of a small machine: the cylinder whole, pipe and pump by their time for an
  iteration and their most iterations.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

SECONDS = 3600.0
#: Of a Standard_D16as_v5: its 16 vCPU are two threads of each.
CORES_OF_A_NODE = 8


@dataclass(frozen=True)
class Work:
    """What a dataset takes: its cases, a core's seconds for each, hours of training."""

    name: str
    cases: int
    core_seconds: float
    gpu_hours: float

    @property
    def node_hours(self) -> float:
        """Return the hours of a solving node that is kept busy."""
        return self.cases * self.core_seconds / SECONDS / CORES_OF_A_NODE


PAPER = (
    Work("Cyl.Flow", 200, 50, 7.1),
    Work("Br.Pipe", 300, 300, 4.5),
    Work("Ctr.Pump", 300, 3000, 2.3),
)


@dataclass(frozen=True)
class Prices:
    """Prices of an hour."""

    gpu_node: float = 3.67
    solving_node: float = 0.69
    spot: float = 0.3
    """The part of a solving node's price that a spot machine costs; it changes daily"""
    services_node: float = 0.35
    services_nodes: int = 2


def rows(prices: Prices) -> list[str]:
    """Return the rows of the table, the heading first."""
    table = [
        "| dataset | cases | solving, core-hours | on spot nodes | on regular ones | A100, hours"
        " | training | together, spot |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for work in PAPER:
        regular = work.node_hours * prices.solving_node
        training = work.gpu_hours * prices.gpu_node
        cells = (
            work.name,
            str(work.cases),
            f"{work.node_hours * CORES_OF_A_NODE:.0f}",
            f"{regular * prices.spot:.2f}",
            f"{regular:.2f}",
            f"{work.gpu_hours:g}",
            f"{training:.2f}",
            f"{regular * prices.spot + training:.2f}",
        )
        table.append(f"| {' | '.join(cells)} |")
    return table


def services(prices: Prices) -> str:
    """Say what is paid while nobody works."""
    month = prices.services_node * prices.services_nodes * 730
    return f"the pool `services`, all month: {month:.0f}"


def main() -> None:
    """Print table and services."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    defaults = Prices()
    for name in ("gpu_node", "solving_node", "spot", "services_node"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=float, default=getattr(defaults, name))
    prices = Prices(**vars(parser.parse_args()))
    print("\n".join([*rows(prices), "", services(prices)]))


if __name__ == "__main__":
    main()
