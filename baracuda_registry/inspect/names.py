"""From what a person types to what the registry knows.

A name that is wrong by a letter is answered with the nearest right ones: ids are long, and nobody types them twice.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import TypeVar

from ..catalog import Registry
from ..device import NAMED, Device
from ..elements import ElementKind
from ..errors import InvalidProblem
from ..manifest import Variant
from ..sku import KernelSku, OpKind

_Member = TypeVar("_Member", bound=enum.Enum)

_SHOWN = 4


def nearest(text: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `text`, best first; none where nothing is like it."""
    import difflib

    folded = {name.lower(): name for name in known}
    return [
        folded[name] for name in difflib.get_close_matches(text.lower(), list(folded), n=count, cutoff=0.5)
    ]


def unknown(what: str, text: str, known: Iterable[str]) -> InvalidProblem:
    """The error for a name that is not known: the nearest ones, or all when they are few."""
    names = sorted(known)
    close = nearest(text, names)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif len(names) <= 24:
        hint = f"known are {', '.join(names)}"
    else:
        hint = f"there are {len(names)}, `list` shows them"
    return InvalidProblem(f"{what} {text!r} is not known; {hint}")


def member(kind: type[_Member], value: _Member | str, what: str) -> _Member:
    """A member of an enum by itself, its value or its name in any case.

    Raises:
        InvalidProblem: there is none.
    """
    if isinstance(value, kind):
        return value
    wanted = _plain(str(value))
    for candidate in kind:
        if wanted in (_plain(str(candidate.value)), _plain(candidate.name)):
            return candidate
    raise unknown(what, str(value), (str(candidate.value) for candidate in kind))


def element_named(value: ElementKind | str, what: str = "element type") -> ElementKind:
    """An element kind by itself or its text.

    Raises:
        InvalidProblem: there is none.
    """
    return member(ElementKind, value, what)


def op_named(table: Registry, value: OpKind | str) -> OpKind:
    """An operation that the registry holds, by its kind, its SKU text, or its plan's name.

    Raises:
        InvalidProblem: there is none; says so apart when the kind exists but nothing computes it.
    """
    from .ops import OPS

    present = {sku.op.name.lower(): sku.op for sku in table.skus()}
    if not isinstance(value, str):
        if present.get(value.name.lower()) is value:
            return value
        raise InvalidProblem(
            f"op {value.name.lower()} is reserved, no variant computes it; there are {', '.join(present)}"
        )
    names = dict(present)
    for entry in OPS.values():
        if entry.name in present:
            names[entry.alias] = entry.op
    found = names.get(value.strip().lower().replace("-", "_"))
    if found is None:
        raise unknown("op", value, names)
    return found


def device_named(value: Device | str | None) -> Device:
    """A device by itself, by a GPU's public name, as `host` or `current`; None is the current one.

    Raises:
        InvalidProblem: the name is not in the table.
    """
    if isinstance(value, Device):
        return value
    if value is None or value.lower() == "current":
        return Device.current()
    if value.lower() == "host":
        return Device.host()
    try:
        return Device.named(value)
    except InvalidProblem:
        raise unknown("device", value, [*NAMED, "host", "current"]) from None


def sku_named(table: Registry, value: KernelSku | str) -> KernelSku:
    """A SKU of the registry by itself or its text.

    Raises:
        InvalidProblem: it is not registered.
    """
    if isinstance(value, KernelSku):
        table.variants(value)
        return value
    for sku in table.skus():
        if str(sku) == value:
            return sku
    raise unknown("SKU", value, map(str, table.skus()))


def variant_named(table: Registry, value: Variant | str) -> Variant:
    """A variant by itself, its id, or words that only one has: `group_norm bf16 f32 split_v8`, also with slashes.

    Raises:
        InvalidProblem: none, or several.
    """
    if isinstance(value, Variant):
        return value
    try:
        return table.variant(value)
    except InvalidProblem:
        pass
    words = [word for word in re.split(r"[\s/,]+", value.strip().lower()) if word]
    found = [variant for variant in table.all_variants() if words and _has_words(variant, words)]
    if len(found) == 1:
        return found[0]
    if found:
        shown = "\n".join(f"  {variant.id}" for variant in found[:_SHOWN])
        more = f"\n  … and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise InvalidProblem(f"{value!r} names {len(found)} variants, want one:\n{shown}{more}")
    if value.count("-") < 8 and (len(words) > 1 or value in _words_of(table)):
        for word in words:
            if word not in _words_of(table) and (close := nearest(word, _words_of(table))):
                raise InvalidProblem(
                    f"variant {value!r}: no variant has {word!r}; did you mean {' or '.join(close)}?"
                )
        raise InvalidProblem(f"no variant has all of {', '.join(words)}; `list` shows what there is")
    raise unknown("variant", value, (variant.id for variant in table.all_variants()))


def _words_of(table: Registry) -> set[str]:
    """Every word that `variant_named` understands."""
    return {word for variant in table.all_variants() for names in _fields(variant) for word in names if word}


def _fields(variant: Variant) -> list[set[str]]:
    """The words for each field of a variant's key, and for its design."""
    from .ops import OPS

    sku = variant.sku
    name = sku.op.name.lower()
    return [
        {sku.category.value},
        {name, OPS[name].alias if name in OPS else name},
        {sku.element.value},
        {"none" if sku.aux_element is None else sku.aux_element.value},
        {sku.arch.value},
        {sku.backend.value},
        {variant.design},
    ]


def _has_words(variant: Variant, words: list[str]) -> bool:
    """Whether each word stands for a field of its own."""
    fields = _fields(variant)
    for word in words:
        for index, names in enumerate(fields):
            if word in names:
                del fields[index]
                break
        else:
            return False
    return True


def _plain(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "").replace(" ", "")
