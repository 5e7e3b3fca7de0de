"""Courant: encoder, processor and decoder put together. Assembly only; the mathematics is in their modules."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from courant.model.anchors import farthest_point_sampling, gather_points
from courant.model.config import CourantConfig
from courant.model.decoder import Decoder
from courant.model.decomposition import Decomposition
from courant.model.encoder import Encoder
from courant.model.fourier_features import FourierFeatures
from courant.model.gaussian_window import GaussianWindows
from courant.model.initialisation import initialise
from courant.model.processor import Processor


class Courant(nn.Module):
    """Point cloud in, field at any query points out.

    Shapes: B clouds, N points, M queries, L anchors, T steps. Coordinates are normalised. `mask` (B, N) is True at
    real points; what stands in the padding, NaN included, has no influence on results or gradients. A cloud without
    a single real point is read as one featureless point at the origin.
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = FourierFeatures(config.dimension, config.width, config.bandwidth)
        self.query_embedding = (
            None if config.shared_embedding else FourierFeatures(config.dimension, config.width, config.bandwidth)
        )
        self.learned_anchors = (
            nn.Parameter(2 * torch.rand(config.num_anchors, config.dimension) - 1)
            if config.anchor_kind == "learned"
            else None
        )
        self.learned_queries = (
            nn.Parameter(torch.randn(config.num_anchors, config.width)) if config.anchor_kind == "abstract" else None
        )
        self.windows = GaussianWindows(config) if config.gaussian_window != "none" else None
        self.encoder = Encoder(config)
        self.processor = Processor(config) if config.transient else None
        self.decoder = Decoder(config)
        initialise(self)

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
        """Predict the field at the query points.

        points (B, N, d_c), features (B, N, d_f), query_points (B, M, d_c), query_features (B, M, d_xi), parameters
        (B, n_g), anchors (B, L, d_c) to use instead of sampling them (cached per case) -> (B, M, d_out) steady, or
        (B, T, M, d_out) transient: the states after 1..T = num_steps steps.
        """
        anchors = self.place_anchors(points, mask) if anchors is None else anchors
        Z = self.encode(points, features, mask=mask, parameters=parameters, anchors=anchors)
        if self._check_steps(num_steps):
            Z = self.rollout(Z, self._check_steps(num_steps))
        return self.decode(Z, query_points, query_features, anchors=anchors)

    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """p^(0) (B, L, d_c): sampled from the cloud or learned; None for abstract queries."""
        self._check_cloud(points, mask)
        if self.learned_queries is not None:
            return None
        if self.learned_anchors is not None:
            return self.learned_anchors.expand(points.shape[0], -1, -1)
        if mask is not None:
            points = points.masked_fill(~mask[..., None], 0.0)
        return gather_points(points, farthest_point_sampling(points, self.config.num_anchors, mask))

    def encode(
        self,
        points: Tensor,
        features: Tensor,
        *,
        mask: Tensor | None = None,
        parameters: Tensor | None = None,
        anchors: Tensor | None = None,
    ) -> Tensor:
        """Z(0) (B, L, d); arguments as in `forward`."""
        return self.encode_with_windows(points, features, mask=mask, parameters=parameters, anchors=anchors)[0]

    def encode_with_windows(
        self,
        points: Tensor,
        features: Tensor,
        *,
        mask: Tensor | None = None,
        parameters: Tensor | None = None,
        anchors: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """As `encode`, and the anchors (B, L, d_c) of each windowed encoder block."""
        self._check_cloud(points, mask)
        self._check_features(points, features, parameters)
        if mask is not None:
            points = points.masked_fill(~mask[..., None], 0.0)
            features = features.masked_fill(~mask[..., None], 0.0)
        anchors = self.place_anchors(points, mask) if anchors is None else anchors
        self._check_anchors(points.shape[0], anchors)
        if self.learned_queries is not None:
            Z = self.learned_queries.expand(points.shape[0], -1, -1)
        else:
            assert anchors is not None
            Z = self.embedding(anchors)  # Eq. anchor-init
        return self.encoder(
            Z,
            points,
            self.embedding(points),
            features,
            parameters=parameters,
            mask=mask,
            anchors=anchors,
            windows=self.windows,
        )

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        """Z(0) (B, L, d) -> Z(1), ..., Z(T): (B, T, L, d)."""
        if self.processor is None:
            raise ValueError("a steady Courant has no processor to roll out; build it with transient=True")
        return self.processor(Z, num_steps)

    def decode(
        self,
        Z: Tensor,
        query_points: Tensor,
        query_features: Tensor | None = None,
        *,
        anchors: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor:
        """Z (B, [T,] L, d) at query_points (B, M, d_c) -> (B, [T,] M, d_out).

        `anchors` are those given to (or placed by) the encoder; only a decoder with Gaussian windows needs them.
        `chunk` bounds the number of queries handled at once, for inference at millions of points.
        """
        self._check_queries(Z, query_points, query_features, anchors)
        keys, table = self.fold(Z, anchors)
        if chunk is None or chunk >= query_points.shape[1]:
            field = self.decoder(self.embed_queries(query_points, query_features), keys, table)
        else:
            field = self._decode_chunks(keys, table, query_points, query_features, chunk)
        return field if Z.dim() == 4 else field[:, 0]

    def decompose(
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
    ) -> Decomposition:
        """The field of `forward` as an offset and one contribution for each anchor; arguments as in `forward`."""
        with torch.no_grad():
            anchors = self.place_anchors(points, mask) if anchors is None else anchors
            Z, moved = self.encode_with_windows(points, features, mask=mask, parameters=parameters, anchors=anchors)
            if self._check_steps(num_steps):
                Z = self.rollout(Z, self._check_steps(num_steps))
            self._check_queries(Z, query_points, query_features, anchors)
            if self.windows is not None and self.config.window_in_decoder:
                assert anchors is not None
                moved = [*moved, self.windows.anchors(self.windows.in_use[-1], anchors, Z)]
            table = self.fold(Z, anchors)[1]
            return Decomposition(
                offset=self.decoder.offset(),
                latent=Z,
                anchors=anchors,
                window_anchors=tuple(moved),
                table=table if Z.dim() == 4 else table[:, 0],
                num_queries=query_points.shape[1],
                model=self,
                query_points=query_points,
                query_features=query_features,
            )

    def embed_queries(self, query_points: Tensor, query_features: Tensor | None = None) -> Tensor:
        """Decoder queries (B, H, M, P): independent of the latent, so once per geometry."""
        embedding = self.embedding if self.query_embedding is None else self.query_embedding
        return self.decoder.queries(query_points, embedding(query_points), query_features)

    def fold(self, Z: Tensor, anchors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Decoder keys (B, S, H, L, P) and table (B, S, H, L, d_out) of Z (B, [S,] L, d)."""
        return self.decoder.fold(Z if Z.dim() == 4 else Z[:, None], anchors, self.windows)

    def _decode_chunks(
        self, keys: Tensor, table: Tensor, query_points: Tensor, query_features: Tensor | None, chunk: int
    ) -> Tensor:
        def parts() -> Iterator[Tensor]:
            for start in range(0, query_points.shape[1], chunk):
                part = slice(start, start + chunk)
                features = None if query_features is None else query_features[:, part]
                yield self.decoder(self.embed_queries(query_points[:, part], features), keys, table)

        if torch.is_grad_enabled():
            return torch.cat(list(parts()), dim=2)
        # written in place: a list of parts would hold the field twice
        field = table.new_empty(*keys.shape[:2], query_points.shape[1], self.config.num_outputs)
        for start, part in zip(range(0, query_points.shape[1], chunk), parts(), strict=True):
            field[:, :, start : start + chunk] = part
        return field

    def _check_steps(self, num_steps: int | None) -> int:
        """T, or 0 for a steady model."""
        if self.config.transient and num_steps is None:
            raise ValueError("a transient Courant needs num_steps, the number of steps to predict")
        if not self.config.transient and num_steps is not None:
            raise ValueError(f"a steady Courant predicts no steps, got num_steps={num_steps}")
        return num_steps or 0

    def _check_cloud(self, points: Tensor, mask: Tensor | None) -> None:
        if points.dim() != 3 or points.shape[-1] != self.config.dimension:
            raise ValueError(f"points must be (B, N, {self.config.dimension}), got {tuple(points.shape)}")
        if mask is not None and (mask.shape != points.shape[:2] or mask.dtype != torch.bool):
            raise ValueError(f"mask must be bool {tuple(points.shape[:2])}, got {mask.dtype} {tuple(mask.shape)}")

    def _check_features(self, points: Tensor, features: Tensor, parameters: Tensor | None) -> None:
        expected = (*points.shape[:2], self.config.num_features)
        if features.shape != expected:
            raise ValueError(f"features must be {tuple(expected)}, got {tuple(features.shape)}")
        given = None if parameters is None else tuple(parameters.shape)
        wanted = (points.shape[0], self.config.num_parameters) if self.config.num_parameters else None
        if given != wanted:
            raise ValueError(f"parameters must be {wanted}, got {given}")

    def _check_anchors(self, num_clouds: int, anchors: Tensor | None) -> None:
        expected = (num_clouds, self.config.num_anchors, self.config.dimension)
        if anchors is not None and tuple(anchors.shape) != expected:
            raise ValueError(f"anchors must be {expected}, got {tuple(anchors.shape)}")

    def _check_queries(
        self, Z: Tensor, query_points: Tensor, query_features: Tensor | None, anchors: Tensor | None
    ) -> None:
        config = self.config
        if query_points.dim() != 3 or query_points.shape[0] != Z.shape[0] or query_points.shape[2] != config.dimension:
            expected = (Z.shape[0], "M", config.dimension)
            raise ValueError(f"query_points must be {expected}, got {tuple(query_points.shape)}")
        given = None if query_features is None else tuple(query_features.shape)
        wanted = (*query_points.shape[:2], config.num_query_features) if config.num_query_features else None
        if given != wanted:
            raise ValueError(f"query_features must be {wanted}, got {given}")
        if config.window_in_decoder and anchors is None:
            raise ValueError(
                "this decoder has Gaussian windows: pass the anchors that the encoder used (place_anchors)"
            )
