"""The operations as problems that can be named in text: plan, example, and the two extents that a map spans.

A descriptor's own fields are the vocabulary (`input_shape=32,320,64,64 num_groups=32 element=bf16`), so an operation
needs one row here and nothing else for the command line, the report, `verify` and `bench` to know it.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from ..elements import ElementKind
from ..errors import InvalidProblem
from ..plans.base import Plan, Signature
from ..sku import NormalizationKind, OpKind, PoolKind, QuantizeKind
from . import grids
from .grids import Axis, Fields
from .names import element_named, nearest, unknown

_ALIASES = {
    "shape": ("input_shape",),
    "groups": ("num_groups",),
    "g": ("num_groups", "group_size"),
    "dtype": ("element", "input_element"),
    "in": ("input_element",),
    "out": ("output_element",),
    "codes": ("output_element",),
    "stats": ("stats_element",),
    "n": ("batch",),
    "c": ("channels",),
    "l": ("l_in",),
    "k": ("window",),
    "s": ("stride",),
    "outer": ("outer_size",),
    "axis": ("axis_size",),
    "group": ("group_size",),
    "affine": ("has_affine",),
}
"""Short names of descriptor fields; the first field that the operation has is meant."""


@dataclass(frozen=True, slots=True, eq=False)
class OpEntry:
    """One operation.

    Attributes:
        op: its kind.
        plan_name: its plan's name in `baracuda_registry`.
        alias: the plan's name as an op text: `quantize_per_group` for `per_group`.
        example: fields of a problem of ordinary size, without the element type.
        axes: the two extents of its map.
        place: fields of the problem at a point of the map.
        problems: small problems, of which `verify` gives every variant some that it serves.
    """

    op: OpKind
    plan_name: str
    alias: str
    example: Fields
    axes: tuple[Axis, Axis]
    place: Callable[[int, int], Fields]
    problems: Callable[[], Iterator[Fields]]

    @property
    def name(self) -> str:
        """The op's text in SKUs."""
        return self.op.name.lower()

    @property
    def plan(self) -> type[Plan[Any, Any]]:
        """The plan class."""
        import baracuda_registry

        plan: type[Plan[Any, Any]] = getattr(baracuda_registry, self.plan_name)
        return plan

    @property
    def element_field(self) -> str:
        """Name of the descriptor's field for the main element type."""
        names = [field.name for field in fields(self.plan.descriptor_type)]
        return "element" if "element" in names else "input_element"

    def fields(self) -> tuple[str, ...]:
        """Names of the descriptor's fields."""
        return tuple(field.name for field in fields(self.plan.descriptor_type))

    def descriptor(
        self, values: Mapping[str, Any], element: ElementKind, aux: ElementKind | None = None
    ) -> Any:
        """A descriptor with these fields for a SKU's types: `aux` is the codes' type, or that of the statistics.

        Raises:
            InvalidProblem, Unsupported: the fields.
        """
        values = {self.element_field: element, **values}
        names = self.fields()
        if "output_element" in names and aux is not None:
            values = {**values, "output_element": aux}
        if "stats_element" in names:
            values = {**values, "stats_element": element if aux is None else aux}
        if aux is ElementKind.U8 and "q_min" in values:
            values = {**values, "q_min": 0, "q_max": 255}
        return self.plan.descriptor_type(**values)

    def parse(self, items: Iterable[str]) -> Any:
        """A descriptor from `field=value` texts, checked by the plan.

        Raises:
            InvalidProblem, Unsupported: a field that is not there or not understood, a missing one, or a problem
                that is none.
        """
        hints = _hints(self.plan.descriptor_type)
        values: dict[str, Any] = {}
        for item in items:
            name, sign, text = item.partition("=")
            if not sign:
                raise InvalidProblem(f"{self.name}: {item!r} is not of the form field=value")
            field = self._field(name.strip())
            if field in values:
                raise InvalidProblem(f"{self.name}: {field} is given twice")
            values[field] = _value(f"{self.name}: {field}", text.strip(), hints[field])
        if "output_element" in hints and "output_element" not in values:
            values["output_element"] = ElementKind.S8
        if "q_min" in hints and not {"q_min", "q_max"} & values.keys():
            unsigned = values["output_element"] is ElementKind.U8
            values |= {"q_min": 0, "q_max": 255} if unsigned else {"q_min": -128, "q_max": 127}
        missing = [
            field.name
            for field in fields(self.plan.descriptor_type)
            if field.default is MISSING and field.default_factory is MISSING and field.name not in values
        ]
        if missing:
            raise InvalidProblem(
                f"{self.name}: {', '.join(missing)} not given; for example: {self.example_text()}"
            )
        desc = self.plan.descriptor_type(**values)
        self.plan.validate(desc)
        return desc

    def example_text(self, element: str = "bf16") -> str:
        """The example as `op field=value …`, which `parse` understands."""
        return " ".join([self.name, *describe({**self.example, self.element_field: element})])

    def signature(self, desc: Any) -> Signature:
        """Operation and types of a descriptor."""
        return self.plan.signature(desc)

    def _field(self, name: str) -> str:
        names = self.fields()
        if name in names:
            return name
        for candidate in _ALIASES.get(name.lower(), ()):
            if candidate in names:
                return candidate
        short = [alias for alias, meant in _ALIASES.items() if set(meant) & set(names)]
        raise unknown(f"{self.name}: field", name, [*names, *short])


def describe(values: Mapping[str, Any]) -> list[str]:
    """Fields as `name=value` texts."""
    texts = []
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, (tuple, list)):
            text = ",".join(map(str, value))
        elif isinstance(value, ElementKind):
            text = value.value
        elif isinstance(value, bool):
            text = str(value).lower()
        else:
            text = str(value)
        texts.append(f"{name}={text}")
    return texts


def describe_problem(desc: Any) -> list[str]:
    """A descriptor as `name=value` texts, defaults left out."""
    values = {}
    for field in fields(desc):
        value = getattr(desc, field.name)
        if field.default is MISSING or value != field.default:
            values[field.name] = value
    return describe(values)


def entry_of(op: OpKind | str) -> OpEntry:
    """The row of an operation, by kind or text.

    Raises:
        InvalidProblem: there is none.
    """
    text = op if isinstance(op, str) else op.name
    text = text.strip().lower().replace("-", "_")
    for entry in OPS.values():
        if text in (entry.name, entry.alias):
            return entry
    raise unknown("op", text, [name for entry in OPS.values() for name in {entry.name, entry.alias}])


def entry_for(desc: Any, op: OpKind | str | None = None) -> OpEntry:
    """The row whose plan takes a descriptor; `op` says which, where several do (LP pooling, forward and backward).

    Raises:
        InvalidProblem: no plan takes it, or `op`'s does not, or several do and `op` is None.
    """
    if op is not None:
        entry = entry_of(op)
        if type(desc) is not entry.plan.descriptor_type:
            raise InvalidProblem(
                f"{entry.name} takes a {entry.plan.descriptor_type.__name__}, got a {type(desc).__name__}"
            )
        return entry
    found = [entry for entry in OPS.values() if entry.plan.descriptor_type is type(desc)]
    if not found:
        known = sorted({entry.plan.descriptor_type.__name__ for entry in OPS.values()})
        close = nearest(type(desc).__name__, known)
        raise InvalidProblem(
            f"a {type(desc).__name__} is no descriptor of an operation; want one of {', '.join(close or known)}"
        )
    if len(found) > 1:
        names = " or ".join(entry.name for entry in found)
        raise InvalidProblem(f"a {type(desc).__name__} describes {names}: say which (op=…)")
    return found[0]


@functools.cache
def _hints(descriptor: type) -> dict[str, Any]:
    return typing.get_type_hints(descriptor)


def _value(what: str, text: str, hint: Any) -> Any:
    """A field's value from its text, by the field's type."""
    options = [hint]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        options = list(typing.get_args(hint))
        if type(None) in options and text.lower() in ("none", ""):
            return None
        options = [option for option in options if option is not type(None)]
    kind = options[0]
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        split = text.replace("x", ",").replace("×", ",") if inner is int else text
        parts = split.split(",")
        try:
            return tuple(_scalar(what, part.strip(), inner) for part in parts)
        except InvalidProblem:
            example = "32,320,64,64" if inner is int else "dx,dgamma"
            raise InvalidProblem(f"{what} is {text!r}, want {inner.__name__}s such as {example}") from None
    return _scalar(what, text, kind)


def _scalar(what: str, text: str, kind: Any) -> Any:
    if kind is ElementKind:
        return element_named(text, f"{what}:")
    if kind is bool:
        if text.lower() in ("true", "1", "yes", "false", "0", "no"):
            return text.lower() in ("true", "1", "yes")
        raise InvalidProblem(f"{what} is {text!r}, want true or false")
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise InvalidProblem(f"{what} is {text!r}, want {wanted}") from None


OPS: dict[str, OpEntry] = {
    entry.name: entry
    for entry in (
        OpEntry(
            PoolKind.LP_POOL1D, "LpPool1dPlan", "lp_pool1d",
            grids.POOL, grids.POOL_AXES, grids.pool_at, grids.pool_problems,
        ),
        OpEntry(
            PoolKind.LP_POOL1D_BACKWARD, "LpPool1dBackwardPlan", "lp_pool1d_backward",
            grids.POOL, grids.POOL_AXES, grids.pool_at, grids.pool_problems,
        ),
        OpEntry(
            NormalizationKind.GROUP_NORM, "GroupNormPlan", "group_norm",
            grids.GROUPS, grids.GROUP_AXES, grids.groups_at, grids.norm_problems,
        ),
        OpEntry(
            NormalizationKind.GROUP_NORM_BACKWARD, "GroupNormBackwardPlan", "group_norm_backward",
            grids.GROUPS, grids.GROUP_AXES, grids.groups_at, grids.norm_problems,
        ),
        OpEntry(
            NormalizationKind.INSTANCE_NORM, "InstanceNormPlan", "instance_norm",
            grids.INSTANCE, grids.INSTANCE_AXES, grids.instances_at, grids.instance_problems,
        ),
        OpEntry(
            NormalizationKind.INSTANCE_NORM_BACKWARD, "InstanceNormBackwardPlan", "instance_norm_backward",
            grids.INSTANCE, grids.INSTANCE_AXES, grids.instances_at, grids.instance_problems,
        ),
        OpEntry(
            QuantizeKind.PER_GROUP, "QuantizePerGroupPlan", "quantize_per_group",
            grids.RANGE, grids.QUANT_AXES, grids.quantized_at(grids.RANGE), grids.ranged_problems,
        ),
        OpEntry(
            QuantizeKind.PER_GROUP_BACKWARD, "QuantizePerGroupBackwardPlan", "quantize_per_group_backward",
            grids.RANGE, grids.QUANT_AXES, grids.quantized_at(grids.RANGE), grids.ranged_problems,
        ),
        OpEntry(
            QuantizeKind.DEQUANTIZE_PER_GROUP, "DequantizePerGroupPlan", "dequantize_per_group",
            grids.AFFINE, grids.QUANT_AXES, grids.quantized_at(grids.AFFINE), grids.group_problems,
        ),
        OpEntry(
            QuantizeKind.DEQUANTIZE_PER_GROUP_BACKWARD, "DequantizePerGroupBackwardPlan",
            "dequantize_per_group_backward",
            grids.AFFINE, grids.QUANT_AXES, grids.quantized_at(grids.AFFINE), grids.group_problems,
        ),
    )
}  # fmt: skip
"""One row an operation, by its text in SKUs."""
