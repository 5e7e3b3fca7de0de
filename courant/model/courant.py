"""Courant, assembled from encoder, processor and decoder, and its parts as exported programs."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from courant.field_model import FieldModel, Inputs, Queries, Reading
from courant.model.attention import CrossAttentionBlock, FeedForward, SelfAttentionBlock
from courant.model.config import FIXED_STEP_SOLVERS, CourantConfig
from courant.model.coordinates import FourierFeatures, farthest_point_sampling, gather_points
from courant.model.decoder import Decoder, Decomposition, spread
from courant.model.encoder import Encoder, Observe
from courant.model.gaussian_window import AnchorUpdate, GaussianWindows
from courant.model.processor import Processor

#: The processor applies one block T times, so its increments add up along one direction instead of
#: at random: with this factor a rollout of some ten steps starts near the identity.
_PROCESSOR_GAIN = 0.1


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
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        """Linear maps keep the variance of a normalised input, biases start at zero.

        Additions to the residual stream are scaled by the square root of their number, and anchor
        updates start at zero (Eq. anchor-update).
        """
        additions = 2 * self.config.num_blocks * (1 + self.config.num_loops)
        gains = {
            self.encoder: additions**-0.5,
            self.processor: _PROCESSOR_GAIN,
            self.decoder: max(1, self.config.decoder_depth) ** -0.5,
        }
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for part, gain in gains.items():
            for module in part.modules() if part is not None else ():
                if isinstance(module, CrossAttentionBlock | SelfAttentionBlock):
                    module.output.weight *= gain
                elif isinstance(module, FeedForward):
                    module.contract.weight *= gain
        for module in self.modules():
            if isinstance(module, AnchorUpdate):
                nn.init.zeros_(module.displacement.weight)

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
        config, (num_clouds, num_points) = self.config, inputs.points.shape[:2]
        _check_shape("features", inputs.features, (num_clouds, num_points, config.num_features))
        wanted = (num_clouds, config.num_parameters) if config.num_parameters else None
        _check_shape("parameters", inputs.parameters, wanted)
        inputs = self._with_anchors(inputs.without_padding())
        if inputs.anchors is not None:
            expected = (num_clouds, config.num_anchors, config.dimension)
            _check_shape("anchors", inputs.anchors, expected)
        if self.learned_queries is not None:
            Z = self.learned_queries.expand(num_clouds, -1, -1)
        else:
            assert inputs.anchors is not None
            Z = self.embedding(inputs.anchors)  # Eq. anchor-init
        return self.encoder(Z, self.embedding, inputs, self.windows, observe)

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        """Z(0) (B, L, d) -> Z(1), ..., Z(T): (B, T, L, d)."""
        if self.processor is None:
            raise ValueError("a steady Courant has no processor; build it with transient=True")
        return self.processor(Z, num_steps)

    def derivative(self, Z: Tensor) -> Tensor:
        """Return the right-hand side of the latent's dynamics: (B, L, d) -> (B, L, d)."""
        if self.processor is None:
            raise ValueError("a steady Courant has no processor; build it with transient=True")
        return self.processor.derivative(Z)

    @property
    def integrator(self) -> tuple[str, float]:
        """The scheme of a rollout, and its step in tau; an adaptive one follows the exact flow."""
        return self.config.solver, self.config.step_size

    def decode(
        self, Z: Tensor, queries: Queries, anchors: Tensor | None = None, chunk: int | None = None
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
            starts = range(0, queries.points.shape[1], chunk)
            some = (queries.part(slice(start, start + chunk)) for start in starts)
            parts = [self.decoder(self.embed_queries(each), keys, table) for each in some]
            field = torch.cat(parts, dim=2)
        return field if Z.dim() == 4 else field[:, 0]

    @torch.no_grad()
    def decompose(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Decomposition:
        """Split the field of `forward` into an offset and one contribution for each anchor."""
        inputs = self._with_anchors(inputs)
        (Z, moved), anchors = self._evolve(inputs, num_steps), inputs.anchors
        self._check_queries(Z, queries, anchors)
        keys, table = self.fold(Z, anchors)
        return Decomposition(
            offset=self.decoder.offset(),
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
        """Predict like `forward`, and return each anchor's mean squared distance (B, L) as well.

        It is that of the query points from the anchor, weighted by the energy of its contribution
        there at the last step, over domain^2 / L. `mask` (B, M) is True at real points.
        """
        inputs = self._with_anchors(inputs)
        Z, moved = self._evolve(inputs, num_steps)
        self._check_queries(Z, queries, inputs.anchors)
        q, (keys, table) = self.embed_queries(queries), self.fold(Z, inputs.anchors)
        places = moved[-1] if moved else inputs.anchors
        found = spread(q, keys, table, queries.points, places, mask)
        return self.decoder(q, keys, table), found / self.config.domain_extent**2

    @torch.no_grad()
    def export(self) -> dict[str, ExportedProgram]:
        """Export encoder, decoder and, if transient, processor, for use without this package.

            programs = model.export()
            torch.export.save(programs["encoder"], "encoder.pt2")  # and processor, decoder

            Z = encoder(points, features, mask, anchors, parameters)
            for _ in range(T): Z = processor(Z)                     # one unit of tau
            u = decoder(Z, query_points, query_features, anchors)   # (B, M, d_out)

        They are traced on the device and in the precision of the weights. Numbers of clouds, points
        and queries stay free. Sampled anchors are an input, learned ones are in the programs;
        inputs that the config does without are None. ValueError for an adaptive solver.
        """
        if self.config.waits_for_device:
            raise ValueError(
                f"{self.config.waits_for_device} chooses its steps by the data; train with one of"
                f" fixed steps ({', '.join(FIXED_STEP_SOLVERS)})"
            )
        config, like = self.config, next(self.parameters())
        clouds, points, queries = Dim("clouds", min=1), Dim("points", min=1), Dim("queries", min=1)

        def zeros(count: int, width: int) -> Tensor:
            return torch.zeros(2, count, width, device=like.device, dtype=like.dtype)

        cloud, latent = zeros(7, config.dimension), zeros(config.num_anchors, config.width)
        sampled = config.num_sampled_anchors > 0
        anchors = zeros(config.num_anchors, config.dimension) if sampled else None
        parameters = zeros(1, config.num_parameters)[:, 0] if config.num_parameters else None
        xi = zeros(5, config.num_query_features) if config.num_query_features else None
        decoder_anchors = anchors if config.window_in_decoder else None
        mask = torch.ones(2, 7, dtype=torch.bool, device=like.device)

        def exported(
            call: Callable[..., Tensor], *given: tuple[Tensor | None, dict[int, Dim]]
        ) -> ExportedProgram:
            """Export a function of tensors whose sizes along some axes stay free."""
            tensors = tuple(tensor for tensor, _ in given)
            free = tuple(None if tensor is None else axes for tensor, axes in given)
            return torch.export.export(Program(self, call), tensors, dynamic_shapes=(free,))

        along_clouds = {0: clouds}
        along_points, along_queries = {0: clouds, 1: points}, {0: clouds, 1: queries}
        programs = {
            "encoder": exported(
                lambda model, points, features, mask, anchors, parameters: model.encode(
                    Inputs(points, features, mask, parameters, anchors)
                ),
                (cloud, along_points),
                (zeros(7, config.num_features), along_points),
                (mask, along_points),
                (anchors, along_clouds),
                (parameters, along_clouds),
            )
        }
        if config.transient:
            programs["processor"] = exported(
                lambda model, Z: model.rollout(Z, 1)[:, 0], (latent, along_clouds)
            )
        learned = config.anchor_kind == "learned"
        programs["decoder"] = exported(
            lambda model, Z, points, features, anchors: model.decode(
                Z, Queries(points, features), model.place_anchors(points) if learned else anchors
            ),
            (latent, along_clouds),
            (zeros(5, config.dimension), along_queries),
            (xi, along_queries),
            (decoder_anchors, along_clouds),
        )
        return programs

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

    def _check_cloud(self, points: Tensor, mask: Tensor | None) -> None:
        if points.dim() != 3 or points.shape[-1] != self.config.dimension:
            raise ValueError(
                f"points must be (B, N, {self.config.dimension}), got {tuple(points.shape)}"
            )
        if mask is not None and (mask.shape != points.shape[:2] or mask.dtype != torch.bool):
            raise ValueError(
                f"mask must be bool {tuple(points.shape[:2])}, got {mask.dtype} {tuple(mask.shape)}"
            )

    def _check_queries(self, Z: Tensor, queries: Queries, anchors: Tensor | None) -> None:
        config, points = self.config, queries.points
        num_clouds = Z.shape[0]
        if points.dim() != 3 or points.shape[::2] != (num_clouds, config.dimension):
            expected = (num_clouds, "M", config.dimension)
            raise ValueError(f"query_points must be {expected}, got {tuple(points.shape)}")
        width = config.num_query_features
        wanted = (*points.shape[:2], width) if width else None
        _check_shape("query_features", queries.features, wanted)
        if config.window_in_decoder and anchors is None:
            raise ValueError(
                "this decoder has Gaussian windows:"
                " pass the anchors that the encoder used (place_anchors)"
            )


def _check_shape(name: str, given: Tensor | None, expected: tuple[int, ...] | None) -> None:
    shape = None if given is None else tuple(given.shape)
    if shape != expected:
        raise ValueError(f"{name} must be {expected}, got {shape}")


class Program(nn.Module):
    """A function of a model and tensors as a module, which torch exports."""

    def __init__(self, model: Courant, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *given: Tensor | None) -> Tensor:
        return self.call(self.model, *given)
