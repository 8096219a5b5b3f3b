"""The problems that every kernel is proved on, and how its results are judged.

One function a family checks one variant on one backend: the host backend, the CPU execution of the generated sources
and a GPU run the very same cases.  Shapes are odd, prime, 0, 1 and past tile boundaries; data are friendly and hostile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import baracuda_registry as br
from baracuda_registry.elements import ElementKind
from baracuda_registry.errors import NoVariant
from baracuda_registry.manifest import Variant

from . import accuracy, backends, data
from .accuracy import Array
from .oracles import norm as norm_oracle
from .oracles import pool as pool_oracle
from .oracles import quantize as quantize_oracle

ULP = {ElementKind.F16: 1.0, ElementKind.BF16: 1.0, ElementKind.F32: 4.0, ElementKind.F64: 4.0}
"""Elementwise results: ulp of T allowed."""

POOL_SHAPES = (
    # batch, channels, l_in, window, stride, ceil_mode
    (1, 1, 1, 1, 1, False),
    (2, 3, 16, 2, 2, False),
    (1, 3, 17, 2, 2, True),
    (1, 2, 31, 5, 2, False),
    (1, 2, 64, 3, 1, True),
    (1, 1, 131, 64, 1, False),
    (1, 2, 40, 4, 6, True),
    (3, 1, 1031, 7, 3, True),
    (1, 1, 4099, 4, 4, False),
    (1, 1, 4096, 8, 8, False),
    (2, 1, 2064, 2, 2, False),
    (2, 1, 2064, 7, 5, False),
    (2, 2, 560, 8, 7, True),
    (3, 1, 1003, 8, 9, True),
    (2, 2, 520, 3, 13, False),
    (3, 1, 2571, 9, 1, False),
    (1, 2, 4400, 300, 1, False),
    (130, 2, 3, 2, 1, False),
    (1, 1, 700, 700, 1, False),
    (1, 1, 1500, 1100, 3, True),
    (0, 3, 8, 2, 2, False),
    (2, 0, 8, 2, 2, False),
)

POOL_EXPONENTS = ((1.0, 2.0, 3.0, 0.5, 2.7), (1.0, 2.0, 3.0, 1.1, 7.0))
"""By turns over the shapes: general powers cost the most, on the CPU above all."""

NORM_SHAPES = (
    # input_shape, num_groups
    ((1, 1, 1), 1),
    ((2, 6), 3),
    ((2, 4, 3), 2),
    ((2, 32, 8, 8), 8),
    ((3, 6, 5), 3),
    ((2, 8, 7, 7), 8),
    ((2, 16, 8, 8, 2), 4),
    ((1, 4, 1031), 2),
    ((1, 2, 1, 1, 1, 3, 2, 8), 1),
    ((1, 8, 32, 32), 2),
    ((1, 3, 4099), 1),
    ((1, 2, 20480), 2),
    ((1, 48, 512), 1),
    ((40, 3, 2), 1),
    ((1, 600, 16), 300),
    ((2, 8, 8, 8), 8),
    ((3, 5, 4, 16), 5),
    ((1, 2, 2056), 2),
    ((1, 2, 10240), 2),
    ((0, 4, 3), 2),
    ((0, 4, 8), 4),
    ((2, 4, 0), 2),
)

QUANT_SHAPES = (
    # outer, axis, group
    (1, 1, 1),
    (3, 5, 5),
    (2, 64, 16),
    (3, 96, 32),
    (1, 128, 128),
    (5, 21, 3),
    (2, 34, 17),
    (7, 24, 8),
    (1, 4096, 64),
    (2, 1031, 1031),
    (1, 2049, 2049),
    (1, 513, 513),
    (0, 8, 4),
    (4, 0, 4),
)

SHAPES: dict[br.OpCategory, tuple[Any, ...]] = {
    br.OpCategory.Pooling: POOL_SHAPES,
    br.OpCategory.Normalization: NORM_SHAPES,
    br.OpCategory.Quantization: QUANT_SHAPES,
}

POOL_DATA = ("normal", "huge", "large", "small", "denormal", "zeros", "mixed_specials")

# Of the largest exponent: where powers are in range but their exponents, times p, need more digits than acc(T) has.
FRACTIONS = {"huge": 1.0, "large": 0.3, "small": -0.3}


def kinds(data_kinds: tuple[str, ...], turn: int, at_once: int = 1) -> tuple[str, ...]:
    """The first kind and, in turn, some of the hostile ones: every shape meets friendly data, every variant meets all."""
    first, *rest = data_kinds
    if not rest:
        return (first,)
    return (first, *(rest[(turn * at_once + index) % len(rest)] for index in range(min(at_once, len(rest)))))


@dataclass
class Proof:
    """What was checked of one variant, with the worst error met in units of what is allowed or of ulps."""

    runs: int = 0
    worst: float = 0.0
    kinds: set[str] = field(default_factory=set)

    def add(self, kind: str, error: float) -> None:
        self.runs += 1
        self.worst = max(self.worst, error)
        self.kinds.add(kind)


def _plan(plan: Any, desc: Any, variant: Variant, backend: Any) -> Any | None:
    """The plan pinned to the variant, or None where the variant does not serve the problem."""
    try:
        return plan.select(None, desc, br.PlanPreference(variant=variant.id), device=backend.device)
    except NoVariant:
        return None


def _data(kind: str, shape: tuple[int, ...], element: ElementKind, seed: int) -> Array:
    if kind in FRACTIONS:
        return data.huge(shape, element, seed, fraction=FRACTIONS[kind])
    result: Array = getattr(data, kind)(shape, element, seed)
    return result


# LP pooling ---------------------------------------------------------------------------------------------------------


def pool_problems(variant: Variant, shapes: Any = POOL_SHAPES) -> Iterator[Any]:
    """Every shape × exponent, as descriptors; whether the variant serves one is for select to say."""
    for turn, (batch, channels, l_in, window, stride, ceil_mode) in enumerate(shapes):
        for p in POOL_EXPONENTS[turn % len(POOL_EXPONENTS)]:
            yield br.LpPool1dDescriptor(
                batch=batch, channels=channels, l_in=l_in, window=window, stride=stride, p=p, ceil_mode=ceil_mode,
                element=variant.sku.element,
            )  # fmt: skip


def check_pool_forward(variant: Variant, backend: Any, shapes: Any = POOL_SHAPES) -> Proof:
    proof, element = Proof(), variant.sku.element
    offsets = backends.misalignments()
    for seed, desc in enumerate(pool_problems(variant, shapes)):
        plan = _plan(br.LpPool1dPlan, desc, variant, backend)
        if plan is None:
            continue
        shape = (desc.batch, desc.channels, desc.l_in)
        for kind in kinds(POOL_DATA, seed):
            x = _data(kind, shape, element, seed)
            offset = next(offsets) if variant.alignment <= element.itemsize else 0
            y = backend.empty((*shape[:2], desc.output_length), x.dtype, offset)
            backends.run(backend, plan, br.LpPool1dFwArgs(x=backend.put(x, offset), y=y))
            got = backend.get(y)
            data.assert_written(got, label=f"y of {desc}, {kind}")
            want = pool_oracle.lp_pool1d(
                x, window=desc.window, stride=desc.stride, p=desc.p, ceil_mode=desc.ceil_mode
            )
            label = f"y, {desc}, {kind}"
            proof.add(kind, accuracy.assert_elementwise(got, want, element, ULP[element], label=label))
    return proof


def check_pool_backward(variant: Variant, backend: Any, shapes: Any = POOL_SHAPES) -> Proof:
    proof, element = Proof(), variant.sku.element
    offsets = backends.misalignments()
    stable = variant.sku.precision_guarantee.bit_stable_on_same_hardware
    for seed, desc in enumerate(pool_problems(variant, shapes)):
        plan = _plan(br.LpPool1dBackwardPlan, desc, variant, backend)
        if plan is None:
            continue
        shape, options = (
            (desc.batch, desc.channels, desc.l_in),
            {"window": desc.window, "stride": desc.stride, "p": desc.p},
        )
        for kind in kinds(POOL_DATA, seed):
            if not stable and kind in ("huge", "denormal"):
                continue  # scattered sums in T overflow and lose bits where the gather's sum in acc(T) does not
            x = _data(kind, shape, element, seed)
            with np.errstate(all="ignore"):
                y = pool_oracle.lp_pool1d(x, **options, ceil_mode=desc.ceil_mode).astype(x.dtype)
            dy = data.normal(y.shape, element, seed + 1)
            offset = next(offsets) if variant.alignment <= element.itemsize else 0
            dx = backend.empty(shape, x.dtype, offset)
            if not stable:
                dx[...] = 0  # the scatter form adds into a zeroed dx
            args = br.LpPool1dBwArgs(
                x=backend.put(x, offset), y=backend.put(y), dy=backend.put(dy, offset), dx=dx
            )
            backends.run(backend, plan, args)
            got = backend.get(dx)
            label = f"dx, {desc}, {kind}"
            data.assert_written(got, label=label)
            want = pool_oracle.lp_pool1d_backward(x, y, dy, **options)
            size = pool_oracle.lp_pool1d_backward_magnitude(x, y, dy, **options)
            terms = -(-desc.window // desc.stride)
            unit = 2.0**-53 if element is ElementKind.F64 else 2.0**-24
            slack = np.where(np.isfinite(size), size, 0) * unit * (4 + terms)
            if not stable:
                # Sums in T, in any order: where the terms together pass the largest number, one may on its way.
                with np.errstate(all="ignore"):
                    got = np.where(size > accuracy.format_of(element).largest, want.astype(got.dtype), got)
                slack = (
                    slack
                    + np.where(
                        np.isfinite(size), accuracy.ulp(element, np.where(np.isfinite(size), size, 0)), 0
                    )
                    * terms
                )
            limit = ULP[element]
            proof.add(kind, accuracy.assert_elementwise(got, want, element, limit, slack=slack, label=label))
    return proof


# Normalization ------------------------------------------------------------------------------------------------------


def _norm_data(kind: str, shape: tuple[int, ...], element: ElementKind, seed: int) -> Array:
    if kind == "huge":
        return data.huge(shape, element, seed, fraction=0.4)
    return _data(kind, shape, element, seed)


def _norm_descriptor(
    plan: Any, variant: Variant, shape: tuple[int, ...], groups: int, affine: bool, **options: Any
) -> Any | None:
    """The descriptor; None where InstanceNorm has no such problem."""
    stats = variant.sku.aux_element or variant.sku.element
    fields = {
        "input_shape": shape,
        "element": variant.sku.element,
        "has_affine": affine,
        "stats_element": stats,
    }
    if plan in (br.InstanceNormPlan, br.InstanceNormBackwardPlan):
        return plan.descriptor_type(**fields, **options) if groups == shape[1] else None
    return plan.descriptor_type(**fields, num_groups=groups, **options)


NORM_DATA = ("normal", "mean_much_larger_than_sigma", "huge", "denormal", "constant", "mixed_specials")


def check_norm_forward(variant: Variant, backend: Any, plan_type: Any, shapes: Any = NORM_SHAPES) -> Proof:
    proof, element = Proof(), variant.sku.element
    offsets = backends.misalignments()
    for seed, (shape, groups) in enumerate(shapes):
        for affine in (True, False):
            desc = _norm_descriptor(plan_type, variant, shape, groups, affine)
            plan = None if desc is None else _plan(plan_type, desc, variant, backend)
            if plan is None:
                continue
            size = int(np.prod(shape))
            m = max(1, size // max(1, shape[0] * groups))
            for kind in kinds(NORM_DATA, seed + affine):
                x = _norm_data(kind, shape, element, seed)
                gamma = data.normal((shape[1],), element, seed + 2) if affine else None
                beta = data.normal((shape[1],), element, seed + 3) if affine else None
                stats = variant.sku.aux_element or element
                offset = next(offsets) if variant.alignment <= element.itemsize else 0
                y = backend.empty(shape, x.dtype, offset)
                mean, rstd = (backend.empty((shape[0] * groups,), stats.dtype) for _ in range(2))
                args = plan_type.arguments_type(
                    x=backend.put(x, offset), y=y, saved_mean=mean, saved_rstd=rstd, gamma=backend.put(gamma), beta=backend.put(beta)
                )  # fmt: skip
                backends.run(backend, plan, args)
                label = f"{desc}, {kind}"
                if size == 0:
                    proof.add(kind, 0.0)
                    continue
                want, want_mean, want_rstd = norm_oracle.group_norm(
                    x, num_groups=groups, eps=desc.eps, gamma=gamma, beta=beta
                )
                got = backend.get(y)
                data.assert_written(got, label=f"y, {label}")
                scale = _y_scale(want, gamma, beta, shape)
                error = accuracy.assert_norm(got, want, element, m, scale=scale, label=f"y, {label}")
                magnitude = np.maximum(np.abs(want_mean), 1 / np.where(want_rstd > 0, want_rstd, np.inf))
                accuracy.assert_norm(
                    backend.get(mean),
                    want_mean,
                    stats,
                    m,
                    scale=magnitude,
                    any_nonfinite=True,
                    label=f"mean, {label}",
                )
                accuracy.assert_norm(
                    backend.get(rstd), want_rstd, stats, m, scale=want_rstd, label=f"rstd, {label}"
                )
                proof.add(kind, error.worst)
    return proof


def _y_scale(want: Array, gamma: Array | None, beta: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Per channel, the size of the terms of y: |gamma| (the normalised values are of size 1) and |beta|."""
    if gamma is None or beta is None:
        return None
    per_channel = np.abs(gamma.astype(want.dtype)) + np.abs(beta.astype(want.dtype))
    result: Array = np.broadcast_to(per_channel.reshape(1, -1, *(1,) * (len(shape) - 2)), shape)
    return np.maximum(result, np.where(np.isfinite(want), np.abs(want), 0))


def check_norm_backward(variant: Variant, backend: Any, plan_type: Any, shapes: Any = NORM_SHAPES) -> Proof:
    proof = Proof()
    offsets = backends.misalignments()
    subsets = (("dx", "dgamma", "dbeta"), ("dx",), ("dgamma",), ("dbeta", "dx"))
    for seed, (shape, groups) in enumerate(shapes):
        for affine in (True, False):
            desc = _norm_descriptor(plan_type, variant, shape, groups, affine)
            plan = None if desc is None else _plan(plan_type, desc, variant, backend)
            if plan is None:
                continue
            for kind in kinds(NORM_DATA, seed + affine):
                bits = _norm_backward_once(
                    variant,
                    backend,
                    plan_type,
                    plan,
                    desc,
                    shape,
                    groups,
                    affine,
                    kind,
                    seed,
                    next(offsets),
                    proof,
                )
                if kind == "normal" and affine:
                    for outputs in subsets[1:]:
                        part = _norm_descriptor(plan_type, variant, shape, groups, affine, outputs=outputs)
                        partial = _plan(plan_type, part, variant, backend)
                        assert partial is not None, f"{variant.id} does not serve outputs {outputs}"
                        again = _norm_backward_once(
                            variant,
                            backend,
                            plan_type,
                            partial,
                            part,
                            shape,
                            groups,
                            affine,
                            kind,
                            seed,
                            0,
                            proof,
                        )
                        for name in outputs:
                            assert again[name] == bits[name], (
                                f"{name} differs when only {outputs} are computed"
                            )
    return proof


def _norm_backward_once(
    variant: Variant,
    backend: Any,
    plan_type: Any,
    plan: Any,
    desc: Any,
    shape: tuple[int, ...],
    groups: int,
    affine: bool,
    kind: str,
    seed: int,
    offset: int,
    proof: Proof,
) -> dict[str, bytes]:
    element, stats = variant.sku.element, variant.sku.aux_element or variant.sku.element
    offset = offset if variant.alignment <= element.itemsize else 0
    size = int(np.prod(shape))
    m = max(1, size // max(1, shape[0] * groups))
    x = _norm_data(kind, shape, element, seed)
    dy = data.normal(shape, element, seed + 1)
    gamma = data.normal((shape[1],), element, seed + 2) if affine else None
    with np.errstate(all="ignore"):
        _, mean, rstd = norm_oracle.group_norm(x, num_groups=groups, eps=1e-5)
        mean, rstd = mean.astype(stats.dtype), rstd.astype(stats.dtype)
    arrays: dict[str, Any] = {"dx": None, "dgamma": None, "dbeta": None}
    for name in desc.outputs:
        arrays[name] = backend.empty(
            shape if name == "dx" else (shape[1],), x.dtype, offset if name == "dx" else 0
        )
    args = plan_type.arguments_type(
        dy=backend.put(dy, offset), x=backend.put(x, offset), saved_mean=backend.put(mean), saved_rstd=backend.put(rstd),
        gamma=backend.put(gamma), **arrays,
    )  # fmt: skip
    backends.run(backend, plan, args)
    got = {name: backend.get(array) for name, array in arrays.items() if array is not None}
    wanted = norm_oracle.group_norm_backward(dy, x, mean, rstd, gamma, num_groups=groups)
    sizes = norm_oracle.group_norm_backward_magnitude(dy, x, mean, rstd, gamma, num_groups=groups)
    for name, want, magnitude in zip(("dx", "dgamma", "dbeta"), wanted, sizes):
        if name not in got:
            continue
        label = f"{name}, {desc}, {kind}"
        data.assert_written(got[name], label=label)
        count = m if name == "dx" else max(1, size // max(1, shape[1]))
        error = accuracy.assert_norm(
            got[name], want, element, count, scale=magnitude, any_nonfinite=True, label=label
        )
        proof.add(kind, error.worst)
    return {name: values.tobytes() for name, values in got.items()}


# Quantization -------------------------------------------------------------------------------------------------------


def _quant_inputs(
    kind: str, outer: int, axis: int, group: int, element: ElementKind, seed: int
) -> tuple[Array, Array, Array]:
    if kind == "ties" and outer * axis:
        made = data.ties((outer, axis), element, seed, group_size=group)
        return made.x, made.scale, made.zero_point
    rng = np.random.default_rng(seed)
    groups = (outer, axis // group)
    x = _data(
        "normal" if kind in ("ties", "wild_zero_points", "zero_scales") else kind,
        (outer, axis),
        element,
        seed,
    )
    scale = (np.abs(rng.normal(size=groups)) * 0.02 + 1e-3).astype(element.dtype)
    zero_point = rng.integers(-40, 40, groups).astype(np.int32)
    if kind == "wild_zero_points":
        extremes = np.array([-(2**31), 2**31 - 1, -129, 128, 2**24 + 1, -(2**24) - 1], np.int32)
        zero_point = rng.choice(extremes, groups).astype(np.int32)
    if kind == "zero_scales":
        scale = rng.choice(np.array([0.0, -0.0, np.inf, np.nan, -0.5, 1e-7]), groups).astype(element.dtype)
    if kind == "denormal":
        scale = data.denormal(groups, element, seed + 5)
    return x, scale, zero_point


QUANT_DATA = (
    "normal",
    "ties",
    "huge",
    "denormal",
    "zeros",
    "mixed_specials",
    "wild_zero_points",
    "zero_scales",
)


def _ranges(code: ElementKind) -> tuple[tuple[int, int], ...]:
    return ((-128, 127), (-7, 8)) if code is ElementKind.S8 else ((0, 255), (3, 17))


def check_quantize(variant: Variant, backend: Any, plan_type: Any, shapes: Any = QUANT_SHAPES) -> Proof:
    """All four per-group plans: their cases differ only in what goes in and what is compared."""
    proof, element, code = Proof(), variant.sku.element, variant.sku.aux_element
    assert code is not None
    offsets = backends.misalignments()
    forward = plan_type is br.QuantizePerGroupPlan
    ranged = plan_type in (br.QuantizePerGroupPlan, br.QuantizePerGroupBackwardPlan)
    for seed, (outer, axis, group) in enumerate(shapes):
        fields = {
            "outer_size": outer,
            "axis_size": axis,
            "group_size": group,
            "input_element": element,
            "output_element": code,
        }
        for q_min, q_max in _ranges(code) if ranged else ((0, 0),):
            limits = {"q_min": q_min, "q_max": q_max} if ranged else {}
            plan = _plan(plan_type, plan_type.descriptor_type(**fields, **limits), variant, backend)
            if plan is None:
                continue
            for kind in kinds(QUANT_DATA, seed, at_once=4):
                x, scale, zero_point = _quant_inputs(kind, outer, axis, group, element, seed)
                dy = data.mixed_specials((outer, axis), element, seed + 1)
                rng = np.random.default_rng(seed)
                span = (-128, 128) if code is ElementKind.S8 else (0, 256)
                codes = rng.integers(*span, (outer, axis)).astype(code.dtype)
                inputs: dict[str, Array] = {
                    br.QuantizePerGroupPlan: {"input": x, "scale": scale, "zero_point": zero_point},
                    br.QuantizePerGroupBackwardPlan: {
                        "input": x,
                        "scale": scale,
                        "zero_point": zero_point,
                        "d_output": dy,
                    },
                    br.DequantizePerGroupPlan: {"input": codes, "scale": scale, "zero_point": zero_point},
                    br.DequantizePerGroupBackwardPlan: {"d_output": dy, "scale": scale},
                }[plan_type]
                name = (
                    "output"
                    if plan_type in (br.QuantizePerGroupPlan, br.DequantizePerGroupPlan)
                    else "d_input"
                )
                offset = (
                    next(offsets) if variant.alignment == 1 or variant.alignment <= element.itemsize else 0
                )
                results = []
                for pattern in (0, 1):
                    out = backend.empty((outer, axis), (code if forward else element).dtype, offset, pattern)
                    placed = {key: backend.put(value, offset) for key, value in inputs.items()}
                    backends.run(backend, plan, plan_type.arguments_type(**placed, **{name: out}))
                    results.append(backend.get(out))
                label = f"{plan_type.__name__} {outer}x{axis} g{group} [{q_min},{q_max}], {kind}"
                data.assert_written(results[0], results[1], label=label)
                options = {"group_size": group}
                if plan_type is br.QuantizePerGroupPlan:
                    want = quantize_oracle.quantize_per_group(x, scale, zero_point, **options, **limits)
                    accuracy.assert_codes(results[0], want, label=label)
                    proof.add(kind, 0.0)
                    continue
                if plan_type is br.QuantizePerGroupBackwardPlan:
                    want = quantize_oracle.quantize_per_group_backward(
                        x, scale, zero_point, dy, **options, **limits
                    )
                elif plan_type is br.DequantizePerGroupPlan:
                    want = quantize_oracle.dequantize_per_group(codes, scale, zero_point, **options)
                else:
                    want = quantize_oracle.dequantize_per_group_backward(dy, scale, **options)
                proof.add(
                    kind, accuracy.assert_elementwise(results[0], want, element, ULP[element], label=label)
                )
    return proof


# Which check proves which op ----------------------------------------------------------------------------------------

_PLANS: tuple[tuple[Any, Any], ...] = (
    (br.PoolKind.LP_POOL1D, br.LpPool1dPlan),
    (br.PoolKind.LP_POOL1D_BACKWARD, br.LpPool1dBackwardPlan),
    (br.NormalizationKind.GROUP_NORM, br.GroupNormPlan),
    (br.NormalizationKind.GROUP_NORM_BACKWARD, br.GroupNormBackwardPlan),
    (br.NormalizationKind.INSTANCE_NORM, br.InstanceNormPlan),
    (br.NormalizationKind.INSTANCE_NORM_BACKWARD, br.InstanceNormBackwardPlan),
    (br.QuantizeKind.PER_GROUP, br.QuantizePerGroupPlan),
    (br.QuantizeKind.PER_GROUP_BACKWARD, br.QuantizePerGroupBackwardPlan),
    (br.QuantizeKind.DEQUANTIZE_PER_GROUP, br.DequantizePerGroupPlan),
    (br.QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD, br.DequantizePerGroupBackwardPlan),
)


def plan_of(variant: Variant) -> Any:
    """The plan class that a variant serves."""
    return next(plan for kind, plan in _PLANS if kind is variant.sku.op)


def check(variant: Variant, backend: Any, shapes: Any = None) -> Proof:
    """Prove a variant on a backend over its family's cases."""
    plan, chosen = plan_of(variant), {} if shapes is None else {"shapes": shapes}
    if plan is br.LpPool1dPlan:
        return check_pool_forward(variant, backend, **chosen)
    if plan is br.LpPool1dBackwardPlan:
        return check_pool_backward(variant, backend, **chosen)
    if plan in (br.GroupNormPlan, br.InstanceNormPlan):
        return check_norm_forward(variant, backend, plan, **chosen)
    if plan in (br.GroupNormBackwardPlan, br.InstanceNormBackwardPlan):
        return check_norm_backward(variant, backend, plan, **chosen)
    return check_quantize(variant, backend, plan, **chosen)
