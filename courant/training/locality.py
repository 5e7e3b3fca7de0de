"""Keep contributions near their anchors: the term of the loss that `training.locality_weight` adds.

Its cost is that of the decoder's weights at one more step of the rollout, at no more than 1,024
query points of each sample.
"""

from __future__ import annotations

from torch import Tensor, nn

from courant.field_model import Inputs, MeasuresSpread, Queries
from simgen.errors import InputError


class WithSpread(nn.Module):
    """A model whose forward returns the spread of its contributions beside its prediction.

    One module for both, so that workers and compilers wrap them together.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, MeasuresSpread):
            raise InputError(
                "training.locality_weight needs a model whose anchors have contributions, such as"
                " courant; set it to 0"
            )
        self.model = model

    def forward(
        self, inputs: Inputs, queries: Queries, num_steps: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the prediction (B, T, M, C) and the spread (B, L)."""
        assert isinstance(self.model, MeasuresSpread)
        return self.model.predict_with_spread(inputs, queries, num_steps, mask)
