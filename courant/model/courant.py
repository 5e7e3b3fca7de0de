"""Assemble Courant from encoder, processor and decoder; the mathematics is in their modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from courant.field_model import FieldModel, Inputs, Queries, Reading
from courant.model.anchors import farthest_point_sampling, gather_points
from courant.model.attention import CrossAttentionBlock
from courant.model.config import CourantConfig
from courant.model.decoder import Decoder
from courant.model.decomposition import Decomposition, spread
from courant.model.encoder import Encoder, Observe
from courant.model.export import export_model
from courant.model.fourier_features import FourierFeatures
from courant.model.gaussian_window import GaussianWindows
from courant.model.initialisation import initialise
from courant.model.processor import Processor


class Courant(FieldModel):
    """Point cloud in, field at any query points out.

    Shapes: B clouds, N points, M queries, L anchors, T steps. Coordinates are normalised. `mask`
    (B, N) is True at real points; padding values, NaN included, have no influence on results or
    gradients. A cloud without a single real point is read as one featureless point at the origin.
    """

    config: CourantConfig

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = FourierFeatures(config.dimension, config.width, config.bandwidth)
        self.query_embedding = (
            None
            if config.shared_embedding
            else FourierFeatures(config.dimension, config.width, config.bandwidth)
        )
        self.learned_anchors = (
            nn.Parameter(2 * torch.rand(config.num_anchors, config.dimension) - 1)
            if config.anchor_kind == "learned"
            else None
        )
        self.learned_queries = (
            nn.Parameter(torch.randn(config.num_anchors, config.width))
            if config.anchor_kind == "abstract"
            else None
        )
        self.windows = GaussianWindows(config) if config.gaussian_window != "none" else None
        self.encoder = Encoder(config)
        self.processor = Processor(config) if config.transient else None
        self.decoder = Decoder(config)
        initialise(self.modules(), self.encoder, self.processor, config)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        """Predict the states after 1..T = num_steps steps at the query points, (B, T, M, d_out).

        `inputs.anchors` (B, L, d_c) replace those that the model would sample (they are cached for
        each case).
        """
        return self.predict(inputs, queries, num_steps)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`; encode once, however many chunks of queries there are."""
        inputs = self._with_anchors(inputs)
        Z = self._advance(self.encode(inputs), num_steps)
        return self.decode(Z, queries, anchors=inputs.anchors, chunk=chunk)

    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Return p^(0) (B, L, d_c), sampled or learned; None for abstract queries."""
        self._check_cloud(points, mask)
        if self.learned_queries is not None:
            return None
        if self.learned_anchors is not None:
            return self.learned_anchors.expand(points.shape[0], -1, -1)
        if mask is not None:
            points = points.masked_fill(~mask[..., None], 0.0)
        return gather_points(points, farthest_point_sampling(points, self.config.num_anchors, mask))

    def encode(self, inputs: Inputs) -> Tensor:
        """Return Z(0) (B, L, d)."""
        return self.encode_with_windows(inputs)[0]

    @torch.no_grad()
    def reading(self, inputs: Inputs, chosen: Sequence[int]) -> Reading:
        """Return which points of the cloud some anchors read at each level."""
        numbers = torch.as_tensor(chosen, dtype=torch.long, device=inputs.points.device)
        weights: list[Tensor] = []

        def observe(
            block: CrossAttentionBlock, Z: Tensor, context: Tensor, columns: Tensor
        ) -> None:
            weights.append(block.weights(Z[:, numbers], context, columns[:, numbers]).mean(1))

        _, moved = self.encode_with_windows(inputs, observe)
        return Reading(torch.stack(weights, dim=1), tuple(moved))

    def encode_with_windows(
        self, inputs: Inputs, observe: Observe | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Encode, and return the anchors (B, L, d_c) of each windowed encoder block as well.

        `observe` is called by each block with what it is about to read.
        """
        self._check_cloud(inputs.points, inputs.mask)
        self._check_features(inputs)
        inputs = self._with_anchors(inputs.without_padding())
        self._check_anchors(inputs.points.shape[0], inputs.anchors)
        if self.learned_queries is not None:
            Z = self.learned_queries.expand(inputs.points.shape[0], -1, -1)
        else:
            assert inputs.anchors is not None
            Z = self.embedding(inputs.anchors)  # Eq. anchor-init
        return self.encoder(Z, self.embedding, inputs, self.windows, observe)

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        """Z(0) (B, L, d) -> Z(1), ..., Z(T): (B, T, L, d)."""
        if self.processor is None:
            raise ValueError(
                "a steady Courant has no processor to roll out; build it with transient=True"
            )
        return self.processor(Z, num_steps)

    def derivative(self, Z: Tensor) -> Tensor:
        """Return the right-hand side of the latent's dynamics: (B, L, d) -> (B, L, d)."""
        if self.processor is None:
            raise ValueError("a steady Courant has no processor; build it with transient=True")
        return self.processor.derivative(Z)

    @property
    def inner_step(self) -> float:
        """The step in tau with which a rollout is integrated."""
        return self.config.step_size

    @property
    def inner_solver(self) -> str:
        """The scheme of that step; an adaptive one follows the exact flow."""
        return self.config.solver

    def decode(
        self,
        Z: Tensor,
        queries: Queries,
        *,
        anchors: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor:
        """Z (B, [T,] L, d) at M query points -> (B, [T,] M, d_out).

        `anchors` are those given to (or placed by) the encoder; only a decoder with Gaussian
        windows needs them. `chunk` bounds the number of queries handled at once, for inference at
        millions of points.
        """
        self._check_queries(Z, queries, anchors)
        keys, table = self.fold(Z, anchors)
        if chunk is None or chunk >= queries.points.shape[1]:
            field = self.decoder(self.embed_queries(queries), keys, table)
        else:
            field = self._decode_chunks(keys, table, queries, chunk)
        return field if Z.dim() == 4 else field[:, 0]

    @torch.no_grad()
    def decompose(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Decomposition:
        """Split the field of `forward` into an offset and one contribution for each anchor.

        Arguments as in `forward`.
        """
        inputs = self._with_anchors(inputs)
        (Z, moved), anchors = self._evolve(inputs, num_steps), inputs.anchors
        self._check_queries(Z, queries, anchors)
        keys, table = self.fold(Z, anchors)
        return Decomposition(
            offset=self.decoder.offset(),
            latent=Z,
            anchors=anchors,
            window_anchors=tuple(moved),
            keys=keys,
            table=table,
            decoder=self.decoder,
            embed=self.embed_queries,
            query_points=queries,
        )

    def predict_with_spread(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Predict like `forward`, and measure how far contributions are from anchors: (B, L)."""
        inputs = self._with_anchors(inputs)
        Z, moved = self._evolve(inputs, num_steps)
        self._check_queries(Z, queries, inputs.anchors)
        q, (keys, table) = self.embed_queries(queries), self.fold(Z, inputs.anchors)
        places = moved[-1] if moved else inputs.anchors
        found = spread(self.decoder.weights, q, keys, table, queries.points, places, mask)
        return self.decoder(q, keys, table), found / self.config.domain_extent**2

    def export(self) -> dict[str, ExportedProgram]:
        """Export encoder, decoder and, if transient, processor as programs (`model.export`)."""
        return export_model(self)

    def embed_queries(self, queries: Queries) -> Tensor:
        """Embed decoder queries (B, H, M, P): independent of the latent, so once per geometry."""
        embedding = self.embedding if self.query_embedding is None else self.query_embedding
        return self.decoder.queries(queries.points, embedding(queries.points), queries.features)

    def fold(self, Z: Tensor, anchors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Fold Z (B, [S,] L, d) into decoder keys (B, S, H, L, P) and table (B, S, H, L, d_out)."""
        return self.decoder.fold(Z if Z.dim() == 4 else Z[:, None], anchors, self.windows)

    def _evolve(self, inputs: Inputs, num_steps: int) -> tuple[Tensor, list[Tensor]]:
        """Return Z (B, T, L, d), and the anchors of the windows, the decoder's last."""
        Z, moved = self.encode_with_windows(inputs)
        Z = self._advance(Z, num_steps)
        if self.windows is None or not self.config.window_in_decoder:
            return Z, moved
        assert inputs.anchors is not None
        return Z, [*moved, self.windows.anchors(self.windows.in_use[-1], inputs.anchors, Z)]

    def _advance(self, Z: Tensor, num_steps: int) -> Tensor:
        """Advance Z(0) (B, L, d) to the processor's states (B, T, L, d); steady: the one state."""
        if self.processor is not None:
            return self.rollout(Z, num_steps)
        if num_steps != 1:
            raise ValueError(f"a steady Courant predicts one step, got num_steps={num_steps}")
        return Z[:, None]

    def _with_anchors(self, inputs: Inputs) -> Inputs:
        if inputs.anchors is not None:
            return inputs
        return inputs._replace(anchors=self.place_anchors(inputs.points, inputs.mask))

    def _decode_chunks(self, keys: Tensor, table: Tensor, queries: Queries, chunk: int) -> Tensor:
        num_queries = queries.points.shape[1]

        def parts() -> Iterator[Tensor]:
            for start in range(0, num_queries, chunk):
                part = queries.part(slice(start, start + chunk))
                yield self.decoder(self.embed_queries(part), keys, table)

        if torch.is_grad_enabled():
            return torch.cat(list(parts()), dim=2)
        # Written in place: a list of parts would hold the field twice.
        field = table.new_empty(*keys.shape[:2], num_queries, self.config.num_outputs)
        for start, part in zip(range(0, num_queries, chunk), parts(), strict=True):
            field[:, :, start : start + chunk] = part
        return field

    def _check_cloud(self, points: Tensor, mask: Tensor | None) -> None:
        if points.dim() != 3 or points.shape[-1] != self.config.dimension:
            raise ValueError(
                f"points must be (B, N, {self.config.dimension}), got {tuple(points.shape)}"
            )
        if mask is not None and (mask.shape != points.shape[:2] or mask.dtype != torch.bool):
            raise ValueError(
                f"mask must be bool {tuple(points.shape[:2])}, got {mask.dtype} {tuple(mask.shape)}"
            )

    def _check_features(self, inputs: Inputs) -> None:
        expected = (*inputs.points.shape[:2], self.config.num_features)
        if inputs.features.shape != expected:
            raise ValueError(
                f"features must be {tuple(expected)}, got {tuple(inputs.features.shape)}"
            )
        given = None if inputs.parameters is None else tuple(inputs.parameters.shape)
        num_parameters = self.config.num_parameters
        wanted = (inputs.points.shape[0], num_parameters) if num_parameters else None
        if given != wanted:
            raise ValueError(f"parameters must be {wanted}, got {given}")

    def _check_anchors(self, num_clouds: int, anchors: Tensor | None) -> None:
        expected = (num_clouds, self.config.num_anchors, self.config.dimension)
        if anchors is not None and tuple(anchors.shape) != expected:
            raise ValueError(f"anchors must be {expected}, got {tuple(anchors.shape)}")

    def _check_queries(self, Z: Tensor, queries: Queries, anchors: Tensor | None) -> None:
        config, points, features = self.config, queries.points, queries.features
        if (
            points.dim() != 3
            or points.shape[0] != Z.shape[0]
            or points.shape[2] != config.dimension
        ):
            expected = (Z.shape[0], "M", config.dimension)
            raise ValueError(f"query_points must be {expected}, got {tuple(points.shape)}")
        given = None if features is None else tuple(features.shape)
        wanted = (
            (*points.shape[:2], config.num_query_features) if config.num_query_features else None
        )
        if given != wanted:
            raise ValueError(f"query_features must be {wanted}, got {given}")
        if config.window_in_decoder and anchors is None:
            raise ValueError(
                "this decoder has Gaussian windows:"
                " pass the anchors that the encoder used (place_anchors)"
            )
