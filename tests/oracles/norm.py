"""Group normalisation, forward and backward, from the definition (Wu & He, "Group Normalization", 2018).

    mean = sum(x)/M            var = sum((x - mean)^2)/M         rstd = 1/sqrt(var + eps)
    x^   = (x - mean)*rstd     y = x^*gamma_c + beta_c           over the M = (C/G)*S elements of a group

    h = dy*gamma_c             A = sum(h)                        B = sum(h*x^)
    dx = rstd*(h - A/M - x^*B/M)    dgamma_c = sum_{n,s} dy*x^        dbeta_c = sum_{n,s} dy

Instance normalisation is num_groups = C.

Special values are those of the formulas in IEEE arithmetic:

* forward: a group that holds a NaN or an infinity has rstd = NaN and y = NaN throughout; its mean is sum(x)/M, so NaN
  or +-inf (implementations that correct or merge means may have NaN for the infinity: compare it as "not finite");
* a constant group has var = 0 exactly; with eps = 0 its rstd is +inf and its y is NaN (0*inf);
* backward: a NaN or infinity in x, dy, mean or rstd of a group makes its whole dx NaN (through A and B; an infinite A
  under a finite h gives -inf for those elements, and so on as the formula says) and reaches dgamma and dbeta only in
  the channels whose own sums it enters;
* M = 0: y and dx are empty, mean and rstd are NaN (0/0); N*S = 0: dgamma and dbeta are 0.
"""

from __future__ import annotations

import math

import numpy as np

from . import Array, received, wide


def group_norm(
    x: Array, *, num_groups: int, eps: float, gamma: Array | None = None, beta: Array | None = None
) -> tuple[Array, Array, Array]:
    """(y like x, mean[N*G], rstd[N*G]) for x[N,C,...].  `eps` is rounded to acc(T).

    The data are shifted by the group's first element before anything is summed.  So a mean much larger than sigma
    costs no accuracy (the shift left to subtract is at most sqrt(M)*sigma, and 2^-53 of that is the error), and a
    constant group has var = 0 exactly.
    """
    w = wide(x.dtype)
    batch = x.shape[0]
    m = _group_size(x, num_groups)
    groups = x.astype(w).reshape(batch, num_groups, m)
    if groups.size == 0:
        nothing = np.full(batch * num_groups, np.nan, w)
        return groups.reshape(x.shape), nothing, nothing.copy()
    with np.errstate(all="ignore"):
        first = groups[..., :1]
        centred = groups - first
        shift = centred.sum(axis=-1, keepdims=True) / m
        centred = centred - shift
        mean = first + shift
        mean = np.where(np.isfinite(mean), mean, groups.sum(axis=-1, keepdims=True) / m)
        var = (centred * centred).sum(axis=-1, keepdims=True) / m
        rstd = 1 / np.sqrt(var + received(eps, x.dtype))
        y = (centred * rstd).reshape(x.shape)
        if gamma is not None:
            y = y * _per_channel(gamma, x)
        if beta is not None:
            y = y + _per_channel(beta, x)
    return y, mean.reshape(-1), rstd.reshape(-1)


def group_norm_backward(
    dy: Array, x: Array, mean: Array, rstd: Array, gamma: Array | None = None, *, num_groups: int
) -> tuple[Array, Array, Array]:
    """(dx like x, dgamma[C], dbeta[C]), with mean[N*G] and rstd[N*G] as stored, whatever their type."""
    with np.errstate(all="ignore"):
        h, normalised, scale, a, b, dy_wide = _backward_parts(dy, x, mean, rstd, gamma, num_groups)
        dx = scale * (h - a - normalised * b)
        channels = _by_channel(dy_wide, x)
        dgamma = (channels * _by_channel(normalised, x)).sum(axis=(0, 2))
        dbeta = channels.sum(axis=(0, 2))
    return dx.reshape(x.shape), dgamma, dbeta


def group_norm_backward_magnitude(
    dy: Array, x: Array, mean: Array, rstd: Array, gamma: Array | None = None, *, num_groups: int
) -> tuple[Array, Array, Array]:
    """The size of what cancels in (dx, dgamma, dbeta): rstd*(|h| + |A|/M + |x^*B|/M), sum|dy*x^|, sum|dy|.

    A and B enter as the sums of their absolute terms.
    """
    with np.errstate(all="ignore"):
        h, normalised, scale, _, _, dy_wide = _backward_parts(dy, x, mean, rstd, gamma, num_groups)
        m = max(1, h.shape[-1])
        a = np.abs(h).sum(axis=-1, keepdims=True) / m
        b = np.abs(h * normalised).sum(axis=-1, keepdims=True) / m
        dx = np.abs(scale) * (np.abs(h) + a + np.abs(normalised) * b)
        channels = np.abs(_by_channel(dy_wide, x))
        dgamma = (channels * np.abs(_by_channel(normalised, x))).sum(axis=(0, 2))
        dbeta = channels.sum(axis=(0, 2))
    return dx.reshape(x.shape), dgamma, dbeta


def _backward_parts(
    dy: Array, x: Array, mean: Array, rstd: Array, gamma: Array | None, num_groups: int
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """h, x^, rstd, A/M, B/M as [N,G,M] or [N,G,1], and dy in the wide type."""
    w = wide(x.dtype)
    m = _group_size(x, num_groups)
    shape = (x.shape[0], num_groups, m)
    dy_wide = dy.astype(w)
    h = dy_wide if gamma is None else dy_wide * _per_channel(gamma, x)
    h = h.reshape(shape)
    centre, scale = (saved.astype(w).reshape(*shape[:2], 1) for saved in (mean, rstd))
    normalised = (x.astype(w).reshape(shape) - centre) * scale
    a = h.sum(axis=-1, keepdims=True) / max(1, m)
    b = (h * normalised).sum(axis=-1, keepdims=True) / max(1, m)
    return h, normalised, scale, a, b, dy_wide


def _group_size(x: Array, num_groups: int) -> int:
    """M = (C/G)*S."""
    if num_groups <= 0 or x.shape[1] % num_groups:
        raise ValueError(f"{x.shape[1]} channels don't divide into {num_groups} groups")
    size: int = x.shape[1] // num_groups * math.prod(x.shape[2:])
    return size


def _per_channel(values: Array, x: Array) -> Array:
    """[C] as [1,C,1,...], in the wide type."""
    return values.astype(wide(x.dtype)).reshape(1, -1, *(1,) * (x.ndim - 2))


def _by_channel(values: Array, x: Array) -> Array:
    """Any layout of x's elements as [N,C,S]."""
    return values.reshape(*x.shape[:2], math.prod(x.shape[2:]))
