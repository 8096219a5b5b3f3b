"""GroupNorm on the host, forward and backward; InstanceNorm is the same with one channel a group.

Everything is float64.  For the narrower types that already makes the statistics exact to well past their own
precision.  For f64 itself the forward subtracts the mean twice: the mean of the residuals is what rounding
left of it, so data with mean >> sigma is as accurate as centred data.

A tensor `[N, C, ...]` is read as groups `[N * G, M]`, each contiguous, M = C/G * S.  Short groups go many at
a time.  A group longer than a segment goes alone, segment by segment, and is read once a pass: nothing of its
size is kept.  The backward needs only two sums a channel and sample, P = sum(dy) and Q = sum(dy * xhat), for
all its outputs: A = sum(gamma P), B = sum(gamma Q), dbeta = sum over samples of P, dgamma = of Q.  So a
gradient has the same bits whichever others are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import blocks
from .blocks import Array, RowFold, split, sum_last


def group_norm(
    x: Array,
    y: Array,
    saved_mean: Array,
    saved_rstd: Array,
    gamma: Array | None,
    beta: Array | None,
    *,
    num_groups: int,
    eps: float,
) -> None:
    """Write y = (x - mean) * rstd * gamma + beta and each group's mean and rstd = 1 / sqrt(var + eps).

    Parameters
    ----------
    x, y : f32, f64, f16 or bf16, [N, C, ...]
        y may be x.
    saved_mean, saved_rstd : as x, or f32 (f64 for f64), [N * num_groups]
        Rounded from the float64 statistics with which y was made.  Groups without elements leave them
        untouched.
    gamma, beta : as x, [C], or None without affine parameters
    """
    if x.size == 0:
        return
    groups = x.shape[0] * num_groups
    length = x.size // groups
    channels = x.shape[1] // num_groups
    shape = (groups, channels, length // channels)
    rows_x, rows_y = x.reshape(shape), y.reshape(shape)
    weight, bias = _by_group(gamma, num_groups), _by_group(beta, num_groups)
    long = length > blocks.SEGMENT_ELEMENTS
    with np.errstate(all="ignore"):
        for rows in split(groups, 1 if long else blocks.CHUNK_ELEMENTS // length):
            take = np.arange(rows.start, rows.stop) % num_groups
            scale = None if weight is None else weight[take]
            shift = None if bias is None else bias[take]
            if long:
                mean, rstd = _forward_long(rows_x[rows], rows_y[rows], scale, shift, eps)
            else:
                mean, rstd = _forward(rows_x[rows], rows_y[rows], scale, shift, eps)
            saved_mean[rows] = mean
            saved_rstd[rows] = rstd


def group_norm_backward(
    dy: Array,
    x: Array,
    saved_mean: Array,
    saved_rstd: Array,
    gamma: Array | None,
    dx: Array | None,
    dgamma: Array | None,
    dbeta: Array | None,
    *,
    num_groups: int,
) -> None:
    """Write those of dx, dgamma and dbeta that are given.

    With h = dy * gamma and xhat = (x - saved_mean) * saved_rstd, over each group of M elements: dx = rstd *
    (h - sum(h)/M - xhat * sum(h * xhat)/M); dgamma = sum(dy * xhat), dbeta = sum(dy) over samples and
    positions.

    Parameters
    ----------
    dy, x, dx : f32, f64, f16 or bf16, [N, C, ...]
        dx may be dy.
    saved_mean, saved_rstd : as x, or f32 (f64 for f64), [N * num_groups]
        Taken as stored.
    gamma, dgamma, dbeta : as x, [C]
        gamma is None without affine parameters.  Sums over nothing are written as zeros.
    """
    if x.size == 0:
        for empty in (dgamma, dbeta):
            if empty is not None:
                empty[...] = 0
        return
    samples, width = x.shape[:2]
    channels = width // num_groups
    shape = (samples * num_groups, channels, x.size // (samples * width))
    length = channels * shape[2]
    rows_dy, rows_x = dy.reshape(shape), x.reshape(shape)
    rows_dx = None if dx is None else dx.reshape(shape)
    weight = _by_group(gamma, num_groups)
    fold_p, fold_q = RowFold(width), RowFold(width)
    long = length > blocks.SEGMENT_ELEMENTS
    with np.errstate(all="ignore"):
        # Whole samples where they fit, so that sums over samples are fed by the row; else one, by groups.
        for batch in split(samples, blocks.CHUNK_ELEMENTS // (width * shape[2])):
            first, count = batch.start * num_groups, (batch.stop - batch.start) * num_groups
            sums_p, sums_q = np.empty((count, channels)), np.empty((count, channels))
            for part in split(count, 1 if long else blocks.CHUNK_ELEMENTS // length):
                rows = slice(first + part.start, first + part.stop)
                group = _Group(
                    dy=rows_dy[rows],
                    x=rows_x[rows],
                    mean=saved_mean[rows, None, None].astype(np.float64),
                    rstd=saved_rstd[rows, None, None].astype(np.float64),
                    weight=None if weight is None else weight[np.arange(rows.start, rows.stop) % num_groups],
                )
                backward = _backward_long if long else _backward
                backward(group, None if rows_dx is None else rows_dx[rows], sums_p[part], sums_q[part])
            if dbeta is not None:
                fold_p.feed(sums_p.reshape(-1, width))
            if dgamma is not None:
                fold_q.feed(sums_q.reshape(-1, width))
        if dbeta is not None:
            dbeta[...] = fold_p.total()
        if dgamma is not None:
            dgamma[...] = fold_q.total()


def _by_group(vector: Array | None, num_groups: int) -> Array | None:
    """`[C]` as float64 `[G, C/G, 1]`, to be indexed by group and broadcast over positions."""
    return None if vector is None else vector.astype(np.float64).reshape(num_groups, -1, 1)


def _forward(x: Array, y: Array, scale: Array | None, shift: Array | None, eps: float) -> tuple[Array, Array]:
    """Normalise `[rows, C/G, S]`; returns float64 mean and rstd, `[rows]`."""
    count, length = x.shape[0], x.shape[1] * x.shape[2]
    work = x.reshape(count, length).astype(np.float64)
    mean = sum_last(work) / length
    work -= mean[:, None]
    if x.dtype == np.float64:
        left = sum_last(work) / length
        work -= left[:, None]
        mean = _corrected(mean, left)
    var = sum_last(np.square(work)) / length
    rstd = 1.0 / np.sqrt(var + eps)
    work *= rstd[:, None]
    _affine(work.reshape(x.shape), y, scale, shift)
    return mean, rstd


def _forward_long(
    x: Array, y: Array, scale: Array | None, shift: Array | None, eps: float
) -> tuple[Array, Array]:
    """`_forward` for one group, `[1, C/G, S]`, that is longer than a segment."""
    flat = x.reshape(-1)
    length = flat.size
    fold = RowFold(1)
    for run in split(length, blocks.SEGMENT_ELEMENTS):
        fold.feed(sum_last(flat[run].astype(np.float64)).reshape(1, 1))
    mean = fold.total() / length
    moments = RowFold(2)
    for run in split(length, blocks.SEGMENT_ELEMENTS):
        work = flat[run].astype(np.float64) - mean
        moments.feed(np.array([[sum_last(work), sum_last(np.square(work))]]))
    left, second = np.split(moments.total() / length, 2)
    # Not the cancelling kind: `left` is but the rounding of `mean`, far below sigma, or exact for constants.
    rstd = 1.0 / np.sqrt(second - left * left + eps)
    for channels, run in _runs(x):
        work = x[:, channels, run].astype(np.float64)
        work -= mean
        work -= left
        work *= rstd
        part_scale = None if scale is None else scale[:, channels]
        part_shift = None if shift is None else shift[:, channels]
        _affine(work, y[:, channels, run], part_scale, part_shift)
    return _corrected(mean, left), rstd


def _affine(work: Array, y: Array, scale: Array | None, shift: Array | None) -> None:
    """Write y = work * scale + shift; `work` is scratch."""
    if scale is not None:
        work *= scale
    if shift is not None:
        work += shift
    y[...] = work


def _corrected(mean: Array, left: Array) -> Array:
    """`mean` plus the mean of its residuals; an infinite mean, whose residuals are NaN, is its own value."""
    corrected: Array = np.where(np.isfinite(mean), mean + left, mean)
    return corrected


@dataclass(frozen=True, slots=True)
class _Group:
    """What the backward reads of some groups: dy and x `[rows, C/G, S]`, the rest float64, to broadcast."""

    dy: Array
    x: Array
    mean: Array
    rstd: Array
    weight: Array | None

    def normalised(self, channels: slice = slice(None), run: slice = slice(None)) -> Array:
        """The xhat of a part, float64."""
        work: Array = self.x[:, channels, run].astype(np.float64)
        work -= self.mean
        work *= self.rstd
        return work

    def mean_of(self, sums: Array) -> Array:
        """A/M or B/M, `[rows, 1, 1]`, from P or Q, `[rows, C/G]`."""
        weighted = sums if self.weight is None else sums * self.weight[:, :, 0]
        length = self.x.shape[1] * self.x.shape[2]
        mean: Array = sum_last(weighted) / length
        return mean[:, None, None]

    def gradient(
        self, work: Array, xhat: Array, mean_p: Array, mean_q: Array, channels: slice = slice(None)
    ) -> Array:
        """The dx of a part, from its dy in float64 and its xhat; both are overwritten."""
        if self.weight is not None:
            work *= self.weight[:, channels]
        work -= mean_p
        xhat *= mean_q
        work -= xhat
        work *= self.rstd
        return work


def _backward(group: _Group, dx: Array | None, sums_p: Array, sums_q: Array) -> None:
    """Fill P and Q, `[rows, C/G]`, and dx."""
    work, xhat = group.dy.astype(np.float64), group.normalised()
    sums_p[...] = sum_last(work)
    sums_q[...] = sum_last(work * xhat)
    if dx is not None:
        dx[...] = group.gradient(work, xhat, group.mean_of(sums_p), group.mean_of(sums_q))


def _backward_long(group: _Group, dx: Array | None, sums_p: Array, sums_q: Array) -> None:
    """`_backward` for one group that is longer than a segment."""
    _, channel_count, positions = group.x.shape
    for channels in split(channel_count, blocks.SEGMENT_ELEMENTS // positions):
        count = channels.stop - channels.start
        fold = RowFold(2 * count)
        for run in split(positions, blocks.SEGMENT_ELEMENTS):
            work, xhat = group.dy[:, channels, run].astype(np.float64), group.normalised(channels, run)
            fold.feed(np.concatenate((sum_last(work), sum_last(work * xhat)), axis=1))
        sums_p[0, channels], sums_q[0, channels] = np.split(fold.total(), 2)
    if dx is None:
        return
    mean_p, mean_q = group.mean_of(sums_p), group.mean_of(sums_q)
    for channels, run in _runs(group.x):
        work, xhat = group.dy[:, channels, run].astype(np.float64), group.normalised(channels, run)
        dx[:, channels, run] = group.gradient(work, xhat, mean_p, mean_q, channels)


def _runs(x: Array) -> Iterator[tuple[slice, slice]]:
    """Cut one group, `[1, C/G, S]`, into (channels, positions): whole channels, or one channel's segments."""
    _, channels, positions = x.shape
    for rows in split(channels, blocks.SEGMENT_ELEMENTS // positions):
        for run in split(positions, blocks.SEGMENT_ELEMENTS):
            yield rows, run
