"""From tables to texts: every source and the manifest, in memory.

Rendering is pure: the same tables and templates give the same bytes, so that writing can skip what did not change and
`--check` can compare without touching the tree.  Undefined template variables are errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import jinja2

from baracuda_registry.elements import ElementKind
from baracuda_registry.manifest import Entry, Hole, Manifest, Parameter, Variant
from baracuda_registry.sku import ArchSku, BackendKind, KernelSku

from .model import TARGETS, Design, Excluded, Kernel, Op, machine_type

COMPILE_OPTIONS = (
    "--std=c++17",
    "--fmad=true",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "-default-device",
    "--diag-suppress=177",
)
"""IEEE division, square root and denormals everywhere: contracts on accuracy hold for hostile data too.  Diagnostic 177
(function never referenced) is off because templates share includes that no single source uses in full."""

ROOT = Path(__file__).parent.parent


def environment(templates: Path = ROOT / "templates") -> jinja2.Environment:
    """The one Jinja environment: strict about undefined names, whitespace kept readable."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return env


def sku_of(op: Op, element: ElementKind, aux: ElementKind | None, design: Design | None) -> KernelSku:
    """The key under which a design is registered; `None` for the host function."""
    if design is None:
        guarantee = op.host_guarantee(element, aux)
        arch, backend = ArchSku.Host, BackendKind.Reference
    else:
        guarantee = design.guarantee or op.guarantee(element, aux)
        arch, backend = design.arch, BackendKind.Bespoke
    return KernelSku(op.category, op.kind, element, aux, None, None, arch, backend, guarantee)


def symbol_of(
    op_name: str, element: ElementKind, aux: ElementKind | None, design: Design, kernel: Kernel
) -> str:
    """`extern "C"` name: readable in a profiler, unique over the whole library."""
    types = element.value if aux is None else f"{element.value}_{aux.value}"
    return f"{op_name}_{types}_{design.name}_{kernel.role}"


def render_source(
    env: jinja2.Environment,
    op: Op,
    op_name: str,
    element: ElementKind,
    aux: ElementKind | None,
    design: Design,
) -> str:
    """The CUDA source of one design for one combination of types."""
    kernels = {kernel.role: kernel for kernel in design.kernels}

    def symbol(role: str) -> str:
        return symbol_of(op_name, element, aux, design, kernels[role])

    def signature(role: str) -> str:
        kernel = kernels[role]
        bounds = f"{kernel.threads}, {kernel.min_blocks}" if kernel.min_blocks else f"{kernel.threads}"
        ahead = ""
        if kernel.min_blocks_sm100:
            bounds = f"{kernel.threads}, kBlocks"
            ahead = (
                "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000  // where the code takes more registers\n"
                f"constexpr int kBlocks = {kernel.min_blocks_sm100};\n#else\n"
                f"constexpr int kBlocks = {kernel.min_blocks};\n#endif\n"
            )
        cluster = f" __cluster_dims__({kernel.cluster}, 1, 1)" if kernel.cluster > 1 else ""
        parameters = ",\n    ".join(f"{p.ctype} {p.name}" for p in kernel.parameters)
        bounded = f"__launch_bounds__({bounds}){cluster}"
        return f'{ahead}extern "C" __global__ void {bounded}\n{symbol(role)}(\n    {parameters})'

    text = env.get_template(design.template).render(
        op=op_name,
        table=op.table,
        template=design.template,
        design=design,
        element=element.value,
        elem_size=element.itemsize,
        elem_cuda=element.info.cuda_type,
        acc=element.accumulator.value,
        acc_cuda=element.accumulator.info.cuda_type,
        aux=None if aux is None else aux.value,
        aux_cuda=None if aux is None else aux.info.cuda_type,
        tuning=design.tuning,
        signature=signature,
        symbol=symbol,
    )
    return text.rstrip("\n") + "\n"


def render_all(ops: Iterable[Op], env: jinja2.Environment | None = None) -> dict[str, str]:
    """Every file below `generated/`, by path.

    Raises:
        ValueError: two designs would write the same file, or an op shares sources with one that lacks them.
    """
    env = environment() if env is None else env
    files: dict[str, str] = {}
    variants: list[Variant] = []
    holes: list[Hole] = []
    for op in ops:
        op_name = op.kind.name.lower()
        owner = op.kind if op.source_of is None else op.source_of
        owner_name = owner.name.lower()
        for element, aux in op.types:
            for design in op.designs(element, aux):
                if isinstance(design, Excluded):
                    types = element.value if aux is None else f"{element.value}/{aux.value}"
                    holes.append(Hole(f"{op.category.value}/{op_name}", types, design.name, design.reason))
                    continue
                sku = sku_of(op, element, aux, design)
                source_sku = sku if owner is op.kind else replace(sku, op=owner)
                path = f"{op.category.value}/{owner_name}/{source_sku}/{design.name}.cu"
                if owner is op.kind:
                    if path in files:
                        raise ValueError(f"two designs write {path}")
                    files[path] = render_source(env, op, op_name, element, aux, design)
                elif path not in files:
                    raise ValueError(f"{op_name} shares {path}, which {owner_name} does not generate")
                variants.append(_variant(op, owner_name, element, aux, design, sku, path))
            variants.append(_host_variant(op, element, aux))
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    variants.sort(key=lambda v: (v.sku, v.rank, v.id))
    manifest = Manifest(Path("generated"), COMPILE_OPTIONS, digests, tuple(variants), tuple(holes))
    files["manifest.json"] = manifest.to_json()
    return files


def _variant(
    op: Op,
    owner_name: str,
    element: ElementKind,
    aux: ElementKind | None,
    design: Design,
    sku: KernelSku,
    path: str,
) -> Variant:
    entries = tuple(
        Entry(
            kernel.role,
            symbol_of(owner_name, element, aux, design, kernel),
            tuple(Parameter(p.name, machine_type(p.ctype, element)) for p in kernel.parameters),
        )
        for kernel in design.kernels
    )
    return Variant(
        id=f"{sku}/{design.name}",
        sku=sku,
        design=design.name,
        summary=design.summary,
        rank=design.rank,
        rank_rules=design.rank_rules,
        pinned_only=design.pinned_only,
        alignment=design.alignment,
        constraints=design.constraints,
        source=path,
        targets=TARGETS[design.arch],
        entries=entries,
        tuning=_with_threads(design),
    )


def _with_threads(design: Design) -> Mapping[str, int]:
    """Tuning as the launch recipe reads it: the design's own, `threads_<role>` and `cluster_<role>` of each kernel."""
    threads = {f"threads_{kernel.role}": kernel.threads for kernel in design.kernels}
    clusters = {f"cluster_{kernel.role}": kernel.cluster for kernel in design.kernels if kernel.cluster > 1}
    return {**design.tuning, **threads, **clusters}


def _host_variant(op: Op, element: ElementKind, aux: ElementKind | None) -> Variant:
    sku = sku_of(op, element, aux, None)
    return Variant(
        id=f"{sku}/numpy",
        sku=sku,
        design="numpy",
        summary="vectorised NumPy on the host",
        rank=1000,
        function=op.host,
    )
