"""Describe a Courant model: its inputs, its outputs, and every choice that the paper names.

The defaults are those of the paper's table of the baseline's architecture (tab:baseline-arch);
`courant.model.presets` holds one function for each published variant.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal, TypeGuard, get_args

from courant.model_config import ModelConfig

AnchorKind = Literal["sampled", "learned", "abstract"]
WindowPlace = Literal["none", "encoder", "decoder", "both"]
ProcessorKind = Literal["attention", "mlp"]

#: Solvers with a fixed step; any other name is taken for an adaptive solver of torchdiffeq.
FIXED_STEP_SOLVERS = ("euler", "midpoint", "heun2", "heun3", "rk4")
ADAPTIVE_SOLVERS = ("dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun")

#: Lower and upper bounds of each number. The upper bounds are far above any model that was trained;
#: they keep an untrusted config from filling the memory.
_WHOLE_NUMBERS = {
    "num_features": (0, 4096),
    "num_outputs": (1, 1024),
    "num_query_features": (0, 4096),
    "num_parameters": (0, 4096),
    "width": (2, 16_384),
    "num_heads": (1, 1024),
    "num_anchors": (1, 16_384),
    "num_levels": (0, 1023),
    "num_loops": (0, 1023),
    "ffn_multiple": (1, 64),
}
#: Blocks of attention in the encoder together.
MAX_BLOCKS = 1024
#: Euler steps between two outputs.
MAX_SUBSTEPS = 1000
_LARGEST = 1e30


@dataclass(frozen=True)
class CourantConfig(ModelConfig):
    """Sizes and choices of one Courant model.

    Frozen, validated, and the same after a JSON round trip. Coordinates are normalised: centred,
    one isotropic scale, the cloud within [-1, 1].
    """

    kind: ClassVar[str] = "courant"

    #: d: latent width.
    width: int = 128
    #: H; the head width is width // num_heads, and width % num_heads channels stay unused (128 = 3
    #: * 42 + 2).
    num_heads: int = 3
    #: L.
    num_anchors: int = 64
    #: The tables' "levels": one input block and this many more, so levels + 1 blocks of cross- and
    #: self-attention.
    num_levels: int = 3
    #: Self-attention blocks after each cross-attention, each with its own weights.
    num_loops: int = 1
    #: Hidden width of the feed-forward networks over `width`.
    ffn_multiple: int = 2

    #: sigma of Eq. rff. 0.3 in tab:courant-shared-hparams; the paper gives no value for the
    #: industrial cases.
    bandwidth: float = 1.0
    #: One embedding for encoder and decoder (as in the paper), or one each.
    shared_embedding: bool = True
    #: The first latent queries: farthest point sampling, learned positions, or learned vectors.
    anchor_kind: AnchorKind = "sampled"

    #: The cross-attentions with the Gaussian window of Eq. gwa.
    gaussian_window: WindowPlace = "none"
    #: alpha of Eq. gwa.
    window_scale: float = 1.0
    #: domain(x) of Eq. gwa: the extent of the normalised cloud.
    domain_extent: float = 2.0

    #: Right-hand side of Eq. ode.
    processor: ProcessorKind = "attention"
    #: Time integrator; all but "euler" need the package torchdiffeq.
    solver: str = "euler"
    #: h of Eq. ode, the reciprocal of a whole number: outputs are one unit of tau apart. 1.0 is the
    #: paper's Delta tau.
    step_size: float = 1.0
    #: Relative and absolute tolerance of an adaptive solver.
    solver_tolerance: float = 1e-4

    #: Recompute each encoder block in the backward pass instead of keeping its activations (large
    #: clouds).
    checkpoint_activations: bool = False

    def __post_init__(self) -> None:
        self._check_ranges()
        self._check_choices()
        self._check_combinations()

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

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> CourantConfig:
        """Rebuild a config; ValueError names a field that is unknown, missing or invalid."""
        return cls.from_dict(json.loads(text))

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

    def _check_ranges(self) -> None:
        for name, (least, most) in _WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"CourantConfig.{name} must be a whole number of at least {least},"
                    f" got {_shown(value)}"
                )
            if value > most:
                raise ValueError(
                    f"CourantConfig.{name} must be at most {most:,}, got {_shown(value)}"
                )
        if self.num_blocks * (1 + self.num_loops) > MAX_BLOCKS:
            raise ValueError(
                f"CourantConfig: num_levels {self.num_levels:,} and num_loops {self.num_loops:,}"
                f" make more than {MAX_BLOCKS:,} blocks; lower one of them"
            )
        if self.dimension not in (1, 2, 3) or not isinstance(self.dimension, int):
            raise ValueError(
                f"CourantConfig.dimension must be 1, 2 or 3, got {_shown(self.dimension)}"
            )
        for name in ("bandwidth", "window_scale", "domain_extent", "step_size", "solver_tolerance"):
            value = getattr(self, name)
            if (
                not isinstance(value, int | float)
                or isinstance(value, bool)
                or not 0 < value <= _LARGEST
            ):
                raise ValueError(
                    f"CourantConfig.{name} must be positive and finite, got {_shown(value)}"
                )
        for name in ("transient", "shared_embedding", "checkpoint_activations"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"CourantConfig.{name} must be true or false, got {_shown(getattr(self, name))}"
                )

    def _check_choices(self) -> None:
        choices: dict[str, tuple[str, ...]] = {
            "anchor_kind": get_args(AnchorKind),
            "gaussian_window": get_args(WindowPlace),
            "processor": get_args(ProcessorKind),
            "solver": FIXED_STEP_SOLVERS + ADAPTIVE_SOLVERS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"CourantConfig.{name} must be one of {', '.join(allowed)}, got"
                    f" {_shown(getattr(self, name))}"
                )

    def _check_combinations(self) -> None:
        if self.width % 2:
            raise ValueError(
                f"CourantConfig.width must be even (cosines and sines share it), got {self.width}"
            )
        if self.head_width < 1:
            raise ValueError(
                f"CourantConfig.num_heads {self.num_heads} is more than width {self.width}"
            )
        if self.anchor_kind == "abstract" and self.gaussian_window != "none":
            raise ValueError(
                "CourantConfig.gaussian_window needs anchors with positions:"
                " use sampled or learned anchors"
            )
        if self.step_size < 1 / MAX_SUBSTEPS:
            raise ValueError(
                f"CourantConfig.step_size must be at least {1 / MAX_SUBSTEPS:g},"
                f" got {self.step_size}"
            )
        if abs(self.num_substeps * self.step_size - 1) > 1e-6:
            raise ValueError(
                "CourantConfig.step_size must be one over a whole number (1, 0.5, ...),"
                f" got {self.step_size}"
            )


def _shown(value: object) -> str:
    """Format a value for an error's line, cut off if long (a huge number has no short form)."""
    text = (
        f"an {type(value).__name__} of {value.bit_length()} bits"
        if _is_huge(value)
        else repr(value)
    )
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_huge(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value.bit_length() > 128
