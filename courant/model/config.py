"""A Courant model's sizes and choices, checked; without torch.

The defaults are those of the paper's table of the baseline's architecture (tab:baseline-arch);
`courant.model.presets` has one function for each published baseline.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from courant.model_config import ModelConfig, choice, size

AnchorKind = Literal["sampled", "learned", "abstract"]
WindowPlace = Literal["none", "encoder", "decoder", "both"]
ProcessorKind = Literal["attention", "mlp"]

#: Solvers with a fixed step; any other name is taken for an adaptive solver of torchdiffeq.
FIXED_STEP_SOLVERS = ("euler", "midpoint", "heun2", "heun3", "rk4")
ADAPTIVE_SOLVERS = ("dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun")

MAX_BLOCKS = 1024  # Blocks of attention in the encoder together
MAX_SUBSTEPS = 1000  # Euler steps between two outputs
_LEAST, _LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class CourantConfig(ModelConfig):
    """Sizes and choices of one Courant model.

    Coordinates are normalised: centred, one isotropic scale, the cloud within [-1, 1].
    """

    kind: ClassVar[str] = "courant"

    width: int = size(128, 2, 16_384)  # d: latent width
    #: H; the head width is width // num_heads, and width % num_heads channels stay unused (128 = 3
    #: * 42 + 2).
    num_heads: int = size(3, 1, 1024)
    num_anchors: int = size(64, 1, 16_384)  # L
    num_levels: int = size(3, 0, 1023)  # the tables' levels: one input block and this many more
    num_loops: int = size(1, 0, 1023)  # self-attention blocks after each cross-attention
    ffn_multiple: int = size(2, 1, 64)  # Hidden width of the feed-forward networks over `width`

    #: Feed-forward blocks on a query in front of its weights w_hk(x); the paper has none. They make
    #: the weights more expressive, once for each geometry; the field stays affine in the values.
    decoder_depth: int = size(0, 0, 64)

    #: sigma of Eq. rff. 0.3 in tab:courant-shared-hparams; the paper gives no value for the
    #: industrial cases.
    bandwidth: float = size(1.0, _LEAST, _LARGEST)
    #: One embedding for encoder and decoder (as in the paper), or one each.
    shared_embedding: bool = True
    #: The first latent queries: farthest point sampling, learned positions, or learned vectors.
    anchor_kind: AnchorKind = choice(*get_args(AnchorKind))

    #: The cross-attentions with the Gaussian window of Eq. gwa.
    gaussian_window: WindowPlace = choice(*get_args(WindowPlace))
    window_scale: float = size(1.0, _LEAST, _LARGEST)  # alpha of Eq. gwa
    domain_extent: float = size(2.0, _LEAST, _LARGEST)  # domain(x) of Eq. gwa

    processor: ProcessorKind = choice(*get_args(ProcessorKind))  # Right-hand side of Eq. ode
    solver: str = choice(*FIXED_STEP_SOLVERS, *ADAPTIVE_SOLVERS)  # all but "euler" need torchdiffeq
    #: h of Eq. ode, the reciprocal of a whole number: outputs are one unit of tau apart. 1.0 is the
    #: paper's Delta tau.
    step_size: float = size(1.0, _LEAST, _LARGEST)
    solver_tolerance: float = size(1e-4, _LEAST, _LARGEST)  # relative and absolute, if adaptive

    checkpoint_activations: bool = False  # recompute encoder blocks backwards: for large clouds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_blocks * (1 + self.num_loops) > MAX_BLOCKS:
            raise ValueError(
                f"CourantConfig: num_levels {self.num_levels:,} and num_loops {self.num_loops:,}"
                f" make more than {MAX_BLOCKS:,} blocks; lower one of them"
            )
        least_step = 1 / MAX_SUBSTEPS
        for wrong, name, demand in (
            (self.width % 2, "width", "must be even (cosines and sines share it)"),
            (self.head_width < 1, "num_heads", f"must be at most the width {self.width}"),
            (
                self.anchor_kind == "abstract" and self.gaussian_window != "none",
                "gaussian_window",
                "needs anchors with positions: use sampled or learned anchors",
            ),
            (self.step_size < least_step, "step_size", f"must be at least {least_step:g}"),
            (
                abs(self.num_substeps * self.step_size - 1) > 1e-6,
                "step_size",
                "must be one over a whole number (1, 0.5, ...)",
            ),
        ):
            if wrong:
                raise ValueError(f"CourantConfig.{name} {demand}, got {getattr(self, name)!r}")

    @property
    def head_width(self) -> int:
        """d_h."""
        return self.width // self.num_heads

    @property
    def num_blocks(self) -> int:
        """Encoder blocks: the input block and `num_levels` more."""
        return self.num_levels + 1

    @property
    def window_in_encoder(self) -> bool:
        return self.gaussian_window in ("encoder", "both")

    @property
    def window_in_decoder(self) -> bool:
        return self.gaussian_window in ("decoder", "both")

    @property
    def num_substeps(self) -> int:
        """Euler steps between two outputs."""
        return round(1 / self.step_size)

    @property
    def num_sampled_anchors(self) -> int:
        """L where anchors are sampled from the cloud: they are cached with its geometry."""
        return self.num_anchors if self.anchor_kind == "sampled" else 0

    @property
    def num_learned_anchors(self) -> int:
        """L where the anchors are weights."""
        return self.num_anchors if self.anchor_kind == "learned" else 0

    @property
    def waits_for_device(self) -> str | None:
        """An adaptive solver waits for the size of its error."""
        return f"the solver {self.solver}" if self.solver in ADAPTIVE_SOLVERS else None
