"""Courant, the neural surrogate, in nothing but torch.

Index of equations, by the labels of the paper's source:

| label             | symbol                     | file                                           |
| ----------------- | -------------------------- | ---------------------------------------------- |
| Eq. rff           | gamma(x)                   | coordinates.py, FourierFeatures                |
| Eq. anchor-init   | q_j^(0) = gamma(p_j^(0))   | courant.py, Courant.encode_with_windows        |
| Eq. kv-tokens     | c_i = [gamma(x_i) + g, f_i] | encoder.py, Encoder._context                  |
| Eq. enc-ca        | CrossAttn^(l)              | attention.py, CrossAttentionBlock              |
| Eq. enc-saff      | SelfAttn^(l)               | attention.py, SelfAttentionBlock               |
| Eq. ode           | dZ/dtau = f(Z), Euler      | processor.py, Processor                        |
| Eq. dec-weights   | w_hk(x)                    | decoder.py, Decoder.weights                    |
| Eq. dec-output    | u(x)                       | decoder.py, Decoder.forward                    |
| Eq. exact-decomp  | u_0, delta_k               | decoder.py, Decomposition                      |
| Eq. anchor-update | p^(l) = p^(0) + Delta_l(z) | gaussian_window.py, AnchorUpdate               |
| Eq. gwa           | b_ji = -|p - x|^2 / sigma^2 | gaussian_window.py, GaussianWindows           |
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from courant.model.config import CourantConfig as CourantConfig

if TYPE_CHECKING:
    from courant.model.coordinates import farthest_point_sampling as farthest_point_sampling
    from courant.model.courant import Courant as Courant
    from courant.model.decoder import Decomposition as Decomposition
    from courant.model.decoder import DecompositionPart as DecompositionPart

_MODULES = {
    "Courant": "courant",
    "Decomposition": "decoder",
    "DecompositionPart": "decoder",
    "farthest_point_sampling": "coordinates",
}


def __getattr__(name: str) -> Any:
    # Configs are read without torch, which takes seconds to import.
    if name not in _MODULES:
        raise AttributeError(f"module 'courant.model' has no attribute '{name}'")
    return getattr(import_module(f"courant.model.{_MODULES[name]}"), name)
