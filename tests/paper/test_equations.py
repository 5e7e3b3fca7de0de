"""The paper's equations one by one, each under its label, against the module that implements it."""

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

import courant.model as package
from courant.field_model import Inputs, Queries
from courant.model import Courant, CourantConfig
from courant.model.coordinates import FourierFeatures
from tests.model.clouds import random_model
from tests.model.literal import explicit_attention, gaussian_bias, literal_forward

CONFIG = CourantConfig(
    num_features=3,
    num_outputs=2,
    num_query_features=2,
    num_parameters=2,
    width=12,
    num_heads=2,
    num_anchors=4,
    num_levels=1,
)
TRANSIENT = replace(CONFIG, num_parameters=0, transient=True)
WINDOWED = replace(CONFIG, num_parameters=0, gaussian_window="both")


def model_of(config: CourantConfig) -> Courant:
    torch.manual_seed(3)
    return random_model(config, torch.float64)


def cloud(count: int, width: int) -> Tensor:
    return 2 * torch.rand(1, count, width, dtype=torch.float64) - 1


def test_the_index_of_equations_names_every_label() -> None:
    for label in (
        "rff",
        "anchor-init",
        "kv-tokens",
        "enc-ca",
        "enc-saff",
        "ode",
        "dec-weights",
        "dec-output",
        "exact-decomp",
        "anchor-update",
        "gwa",
    ):
        assert f"| Eq. {label} " in (package.__doc__ or "")


def test_eq_rff() -> None:
    gamma, x = FourierFeatures(3, 8, bandwidth=0.7), torch.tensor([0.1, -0.4, 0.9])
    for r in range(4):
        phase = 2 * math.pi * 0.7 * sum(gamma.frequencies[r, k] * x[k] for k in range(3))
        torch.testing.assert_close(gamma(x)[r], torch.cos(phase))
        torch.testing.assert_close(gamma(x)[4 + r], torch.sin(phase))
    assert gamma.frequencies.requires_grad
    frequencies = FourierFeatures(3, 20_000, bandwidth=0.7).frequencies
    assert (
        abs(frequencies.mean()) < 0.02 and abs(frequencies.std() - 1) < 0.02
    )  # N(0, 1), not scaled by sigma


def test_eq_anchor_init() -> None:
    """The first queries are gamma of the anchors: with every block's additions silenced they come
    out unchanged.
    """
    model, points = model_of(TRANSIENT), cloud(9, 3)
    for block in model.encoder.blocks:
        for name, parameter in block.named_parameters():
            if "output" in name or "contract" in name:
                torch.nn.init.zeros_(parameter)
    anchors = model.place_anchors(points)
    assert anchors is not None
    torch.testing.assert_close(model.encode(Inputs(points, cloud(9, 3))), model.embedding(anchors))


def test_eq_kv_tokens() -> None:
    """c_i = [gamma(x_i) + g, f_i]; the encoder hands it on normalised."""
    model, points, features = model_of(CONFIG), cloud(5, 3), cloud(5, 3)
    parameters = torch.randn(1, 2, dtype=torch.float64)
    conditioning = model.encoder.conditioning
    assert conditioning is not None
    g = conditioning.weight @ parameters[0] + conditioning.bias
    c = torch.stack(
        [torch.cat((model.embedding(points[0, i]) + g, features[0, i])) for i in range(5)]
    )
    context = model.encoder._context(
        model.embedding, Inputs(points, features, parameters=parameters), False
    )
    torch.testing.assert_close(
        context[0], (c - c.mean(1, keepdim=True)) / (c.var(1, False, keepdim=True) + 1e-5).sqrt()
    )


def attention(q: Tensor, k: Tensor, v: Tensor, num_heads: int) -> Tensor:
    """softmax(q k / sqrt(d_h)) v, head by head: (n, H d_h), (m, H d_h) -> (n, H d_h)."""
    heads = zip(*(each.chunk(num_heads, -1) for each in (q, k, v)), strict=True)
    return torch.cat([explicit_attention(*head, None) for head in heads], dim=-1)


def test_eq_enc_ca() -> None:
    block = model_of(CONFIG).encoder.blocks[0].cross
    Z, c = torch.randn(4, 12, dtype=torch.float64), torch.randn(7, 15, dtype=torch.float64)
    k, v = block.key_value(block.context_norm(c)).chunk(2, -1)
    attended = attention(block.query(block.query_norm(Z)), k, v, 2)
    expected = Z + attended @ block.output.weight.T
    expected = expected + block.feed_forward(expected)
    normalised = layer_norm(c, (15,))
    torch.testing.assert_close(block(Z[None], normalised[None], Z.new_empty(1, 4, 0))[0], expected)


def test_eq_enc_saff() -> None:
    block = model_of(CONFIG).encoder.blocks[0].loops[0]
    Z = torch.randn(4, 12, dtype=torch.float64)
    k, v = block.key_value(block.norm(Z)).chunk(2, -1)
    expected = Z + attention(block.query(block.norm(Z)), k, v, 2) @ block.output.weight.T
    ff = block.feed_forward
    expected = expected + ff.contract(gelu(ff.expand(ff.norm(expected))))
    torch.testing.assert_close(block(Z[None])[0], expected)


def test_eq_ode() -> None:
    """Z(tau + h) = Z(tau) + h f(Z(tau)), outputs at tau = 1, 2, ..."""
    for h, substeps in ((1.0, 1), (0.25, 4)):
        model = model_of(replace(TRANSIENT, step_size=h))
        assert model.processor is not None
        Z = torch.randn(1, 4, 12, dtype=torch.float64)
        states = model.rollout(Z, 2)
        for step in range(2):
            for _ in range(substeps):
                Z = Z + h * (model.processor.right_hand_side(Z) - Z)
            torch.testing.assert_close(states[:, step], Z)


def decoder_terms(model: Courant) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Query points, xi, Z, e and z~ of one cloud."""
    x, xi, Z = cloud(6, 3), cloud(6, 2), torch.randn(1, 4, 12, dtype=torch.float64)
    decoder = model.decoder
    assert decoder.query_features is not None
    e = decoder.query_embedding(
        torch.cat((model.embedding(x), decoder.query_features(xi)), dim=-1)
    )[0]
    return x, xi, Z, decoder.query_norm(e), decoder.latent_norm(Z[0])


def test_eq_dec_weights() -> None:
    model = model_of(TRANSIENT)
    x, xi, Z, e, z = decoder_terms(model)
    W_Q, (W_K, _) = model.decoder.query.weight.chunk(2), model.decoder.key_value.weight.chunk(2)
    weights = model.decoder.weights(model.embed_queries(Queries(x, xi)), model.fold(Z)[0])[0, 0]
    for h in range(2):
        logits = torch.stack(
            [(W_Q[h] @ e[j]) @ (W_K.chunk(2)[h] @ z[k]) for j in range(6) for k in range(4)]
        )
        torch.testing.assert_close(
            weights[h], torch.softmax(logits.view(6, 4) / math.sqrt(6), dim=-1)
        )


def test_eq_dec_output_and_eq_exact_decomp() -> None:
    model = model_of(CONFIG)
    x, xi, Z, _, z = decoder_terms(model)
    decoder = model.decoder
    keys, table = model.fold(Z)
    w = decoder.weights(model.embed_queries(Queries(x, xi)), keys)[0, 0]
    W_V, W_O = decoder.key_value.weight.chunk(2)[1].chunk(2), decoder.output.weight.chunk(2, dim=1)

    field = torch.zeros(6, 12, dtype=torch.float64)
    for h in range(2):  # Eq. dec-output
        field = (
            field
            + torch.stack([sum(w[h, j, k] * (W_V[h] @ z[k]) for k in range(4)) for j in range(6)])
            @ W_O[h].T
        )  # type: ignore[misc]
    field = field @ decoder.field.weight.T + decoder.field.bias
    torch.testing.assert_close(model.decode(Z, Queries(x, xi))[0], field)

    beta = decoder.latent_norm.bias  # Eq. exact-decomp: LN(0) = beta
    offset = decoder.field.bias + decoder.field.weight @ sum(
        W_O[h] @ W_V[h] @ beta for h in range(2)
    )  # type: ignore[operator]
    torch.testing.assert_close(decoder.offset(), offset)
    for k in range(4):
        delta = (
            sum(w[h, :, k, None] * (W_O[h] @ W_V[h] @ (z[k] - beta)) for h in range(2))
            @ decoder.field.weight.T
        )  # type: ignore[operator]
        torch.testing.assert_close((w[:, :, k, None] * table[0, 0, :, None, k]).sum(0), delta)


def test_eq_anchor_update() -> None:
    windows = model_of(WINDOWED).windows
    assert windows is not None
    p, Z = cloud(4, 3), torch.randn(1, 4, 12, dtype=torch.float64)
    assert windows.anchors(0, p, Z) is p
    update = windows.updates["1"]
    torch.testing.assert_close(windows.anchors(1, p, Z), p + update(Z))


def test_eq_gwa() -> None:
    """b_ji joins the scaled logit in every encoder cross-attention and, with queries for points, in
    the decoder.
    """
    model = model_of(WINDOWED)
    points, features, x, xi = cloud(9, 3), cloud(9, 3), cloud(6, 3), cloud(6, 2)
    windows, anchors = model.windows, model.place_anchors(points)
    assert windows is not None and anchors is not None
    sigma_0 = 1.0 * 2.0 / math.sqrt(4)  # alpha domain / sqrt(L)
    for window in range(3):
        sigma = sigma_0 * windows.kappa[window]
        b = -torch.cdist(anchors, points).square() / sigma[:, None] ** 2
        torch.testing.assert_close(gaussian_bias(windows, window, anchors, points), b)
    expected = literal_forward(model, points, features, x, xi)
    torch.testing.assert_close(model(Inputs(points, features), Queries(x, xi)), expected)
