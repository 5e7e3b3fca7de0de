"""Which sizes a model must have to fit its data: channels, distance field, design parameters."""

from __future__ import annotations

from courant.data.known import check_prescribed
from courant.data.normalisation import Normaliser
from courant.experiment import AnyExperiment, Experiment, SteadyExperiment


def wrong_sizes(experiment: AnyExperiment, normaliser: Normaliser) -> list[str]:
    """The model's sizes that are not those of the data, as `model.num_outputs = 3, expected 2`."""
    return [
        f"model.{name} = {getattr(experiment.model, name)}, expected {' or '.join(map(str, values))}"
        for name, values in _fitting_sizes(experiment, normaliser).items()
        if getattr(experiment.model, name) not in values
    ]


def _fitting_sizes(experiment: AnyExperiment, normaliser: Normaliser) -> dict[str, tuple[int | bool, ...]]:
    """What the model's sizes may be; 0 leaves out the distance field of queries, or the global data."""
    num_channels, num_distance = len(normaliser.channels), normaliser.num_distance_channels
    num_features, query_features, parameters = num_channels + num_distance, (num_distance,), (0,)
    if isinstance(experiment, SteadyExperiment):
        check_prescribed(experiment.data.prescribed, normaliser.channels, normaliser.patch_kinds)
        num_features = num_channels if experiment.data.encoder == "boundary" else num_features
        query_features, parameters = (num_distance, 0), (len(normaliser.parameters), 0)  # type: ignore[assignment]
    return {
        "num_features": (num_features,),
        "num_outputs": (num_channels,),
        "num_query_features": query_features,
        "num_parameters": parameters,
        "dimension": (3,),
        "transient": (isinstance(experiment, Experiment),),
    }
