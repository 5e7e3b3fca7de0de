"""CUDA graphs for models so small that launching their kernels takes longer than running them.

    fast = GraphedCourant(model.cuda())
    loss = criterion(fast(points, features, query_points, query_features, num_steps=10, anchors=anchors), target)
    loss.backward()

Shapes must repeat (fixed numbers of points and queries in a batch): each new combination is captured once, and holds
on to its memory. Farthest point sampling runs outside the graph; pass cached anchors to do without it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import cast

import torch
from torch import Tensor, nn

from courant.model.courant import Courant

_WARM_UPS = 3  # side-stream runs before a capture, as torch asks for


class GraphedCourant(nn.Module):
    """Takes and returns what `Courant.forward` does; forward and backward passes are replayed from CUDA graphs.

    Has the model's parameters, under `model`. Wrap in DistributedDataParallel before, not after. Under autocast
    switch its cache off (`torch.autocast("cuda", cache_enabled=False)`): cached casts do not outlive a capture.
    Outputs of a replay are overwritten by the next one with the same shapes.
    """

    def __init__(self, model: Courant) -> None:
        super().__init__()
        device = next(model.parameters()).device
        if device.type != "cuda":
            raise ValueError(f'CUDA graphs need a model on a CUDA device, this one is on "{device}"')
        self.model = model
        self._replays: dict[Hashable, Callable[..., Tensor]] = {}

    def forward(
        self,
        points: Tensor,
        features: Tensor,
        query_points: Tensor,
        query_features: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        parameters: Tensor | None = None,
        num_steps: int | None = None,
        anchors: Tensor | None = None,
    ) -> Tensor:
        autocast = torch.is_autocast_enabled("cuda")
        if autocast and torch.is_autocast_cache_enabled():
            raise ValueError('CUDA graphs need autocast without its cache: torch.autocast("cuda", cache_enabled=False)')
        if anchors is None and self.model.config.anchor_kind == "sampled":
            anchors = self.model.place_anchors(points, mask)
        given = {
            "points": points,
            "features": features,
            "query_points": query_points,
            "query_features": query_features,
            "mask": mask,
            "parameters": parameters,
            "anchors": anchors,
        }
        tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
        key = (
            tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()),
            num_steps,
            torch.is_grad_enabled(),
            torch.get_autocast_dtype("cuda") if autocast else None,
        )
        if key not in self._replays:
            capture = self._capture_training if torch.is_grad_enabled() else self._capture_inference
            self._replays[key] = capture(_Positional(self.model, tuple(tensors), num_steps), tuple(tensors.values()))
        return self._replays[key](*tensors.values())

    def _capture_training(self, call: _Positional, samples: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        """Forward and backward as two graphs behind one autograd node."""
        inputs = tuple(sample.detach().clone() for sample in samples)
        return cast(Callable[..., Tensor], torch.cuda.make_graphed_callables(call, inputs, num_warmup_iters=_WARM_UPS))

    def _capture_inference(self, call: _Positional, samples: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        inputs = tuple(sample.clone() for sample in samples)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                call(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = call(*inputs)

        def replay(*tensors: Tensor) -> Tensor:
            for kept, tensor in zip(inputs, tensors, strict=True):
                kept.copy_(tensor)
            graph.replay()
            return output

        return replay


class _Positional(nn.Module):
    """The model as a function of nothing but tensors, which is what a capture takes."""

    def __init__(self, model: Courant, names: tuple[str, ...], num_steps: int | None) -> None:
        super().__init__()
        self.model, self.names, self.num_steps = model, names, num_steps

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, tensors, strict=True)), num_steps=self.num_steps)
