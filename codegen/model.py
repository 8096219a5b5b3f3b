"""The frozen model that op tables are written in.

An op is declared once, as data: its kind, the types it comes in, and for each type the designs (algorithm, template,
tuning, constraints, kernels).  The tables under `codegen/families/` build these records; the renderer and the manifest
only read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from baracuda_registry.constraint import Constraint
from baracuda_registry.elements import ElementKind
from baracuda_registry.manifest import RankRule
from baracuda_registry.sku import ArchSku, OpCategory, OpKind, PrecisionGuarantee

SM80_TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""Real architectures for which code of tier Sm80 is compiled ahead of time."""

TARGETS: dict[ArchSku, tuple[str, ...]] = {
    ArchSku.Sm80: SM80_TARGETS,
    ArchSku.Sm89: tuple(target for target in SM80_TARGETS if target not in ("sm_80", "sm_86")),
    ArchSku.Sm90a: ("sm_90a",),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: name and C++ type as in the source (`const elem_t* __restrict__`, `long long`, `acc_t`)."""

    name: str
    ctype: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """One `__global__` function of a design.

    Attributes:
        role: short name, unique in the design; also the end of its symbol.
        parameters: in signature order.
        threads: most threads a block it is launched with (`__launch_bounds__`).
        min_blocks: blocks an SM that the register budget must allow, 0 = no demand.
        cluster: blocks of a thread-block cluster.
        min_blocks_sm100: `min_blocks` from compute capability 10.0 on, whose code takes more registers; 0 = as before it.
    """

    role: str
    parameters: tuple[Parameter, ...]
    threads: int
    min_blocks: int = 0
    cluster: int = 1
    min_blocks_sm100: int = 0


@dataclass(frozen=True, slots=True)
class Design:
    """One way to compute an op for one combination of types.

    Attributes:
        name: algorithm with its parameters (`onchip_v8`), unique among the op's designs; `[a-z0-9_]+`.
        template: file below `templates/`.
        summary: one line on how it works, shown by inspection.
        kernels: what the source defines.
        rank: preference, lower first.
        tuning: integers that the template and the launch recipe share.
        constraints: what problem and device must satisfy.
        rank_rules: ranks that depend on the problem.
        alignment: bytes to which vector operands must be aligned.
        pinned_only: never chosen unless pinned.
        arch: architecture tier.
        guarantee: labels, where they differ from the op's.
    """

    name: str
    template: str
    summary: str
    kernels: tuple[Kernel, ...]
    rank: int
    tuning: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    constraints: tuple[Constraint, ...] = ()
    rank_rules: tuple[RankRule, ...] = ()
    alignment: int = 1
    pinned_only: bool = False
    arch: ArchSku = ArchSku.Sm80
    guarantee: PrecisionGuarantee | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """A design that does not exist for a type, with the reason that inspection shows."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    Attributes:
        category: family.
        kind: the family's kind enum member.
        types: `(element, aux_element)` combinations.
        designs: the designs of a combination.
        guarantee: labels of a combination.
        host: `module.function` below `baracuda_registry.reference`.
        host_guarantee: labels of the host function for a combination.
        table: file that declares it, for the header of the sources.
        source_of: another op whose sources it shares; then `designs` must be that op's.
    """

    category: OpCategory
    kind: OpKind
    types: tuple[tuple[ElementKind, ElementKind | None], ...]
    designs: Callable[[ElementKind, ElementKind | None], tuple[Design | Excluded, ...]]
    guarantee: Callable[[ElementKind, ElementKind | None], PrecisionGuarantee]
    host: str
    host_guarantee: Callable[[ElementKind, ElementKind | None], PrecisionGuarantee]
    table: str
    source_of: OpKind | None = None


_MACHINE_TYPES = {
    "int": "i32",
    "unsigned": "u32",
    "long long": "i64",
    "unsigned long long": "u64",
    "float": "f32",
    "double": "f64",
}


def machine_type(ctype: str, element: ElementKind) -> str:
    """How the launcher passes a parameter of this C++ type.

    Raises:
        ValueError: the type is not one that launch recipes can fill.
    """
    if "*" in ctype:
        return "ptr"
    bare = ctype.removeprefix("const ").strip()
    if bare == "acc_t":
        bare = "double" if element.accumulator is ElementKind.F64 else "float"
    try:
        return _MACHINE_TYPES[bare]
    except KeyError:
        raise ValueError(
            f"parameter type {ctype!r} is none of {', '.join(_MACHINE_TYPES)}, acc_t or a pointer"
        ) from None
