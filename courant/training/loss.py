"""The L2 prediction loss (Table tab:baseline-arch, «auxiliary regularization: none»)."""

from __future__ import annotations

from torch import Tensor


def prediction_loss(prediction: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Mean squared error in standardised space over all steps, points and channels.

    prediction, target (B, T, M, C); mask (B, M), True at real points. Scalar, float32.
    """
    return masked_mean((prediction.float() - target).square(), mask)


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean of (B, T, M, C) values over the real points of a (B, M) mask."""
    if mask is None:
        return values.mean()
    weights = mask[:, None, :, None].to(values.dtype)
    return (values * weights).sum() / (weights.sum() * values.shape[1] * values.shape[3])
