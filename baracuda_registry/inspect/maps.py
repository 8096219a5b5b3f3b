"""Selection maps: which variant wins over a grid of two extents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..device import Device
from ..elements import ElementKind
from ..errors import InvalidProblem, NoVariant, Unsupported
from ..select import Selection
from ..sku import OpKind
from .grids import Axis
from .names import device_named, element_named
from .ops import entry_of


@dataclass(frozen=True, slots=True)
class SelectionMap:
    """Winners over a grid.

    Attributes:
        op: the operation's text.
        element: type of the main tensors.
        aux_element: second type, or None.
        device: the device's name.
        x: the first extent.
        y: the second extent.
        designs: names of the designs that win somewhere.
        cells: for each y, for each x: index into `designs`, -1 where nothing serves the problem, -2 where the point is
            no problem (a window longer than its input, say).
    """

    op: str
    element: str
    aux_element: str | None
    device: str
    x: Axis
    y: Axis
    designs: tuple[str, ...]
    cells: tuple[tuple[int, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "op": self.op,
            "element": self.element,
            "aux_element": self.aux_element,
            "device": self.device,
            "x": {"label": self.x.label, "values": list(self.x.values)},
            "y": {"label": self.y.label, "values": list(self.y.values)},
            "designs": list(self.designs),
            "cells": [list(row) for row in self.cells],
        }


def selection_map(
    op: OpKind | str,
    element: ElementKind | str,
    device: Device | str | None,
    aux_element: ElementKind | str | None = None,
) -> SelectionMap:
    """The winner at every point of an operation's own grid of extents.

    Args:
        op: the operation.
        element: type of the main tensors.
        device: a `Device` or a GPU's public name.
        aux_element: type of the codes or of the statistics; None = none (statistics of the element's own type).

    Raises:
        InvalidProblem: a name that is not known.
    """
    entry = entry_of(op)
    kind = element_named(element)
    aux = None if aux_element is None else element_named(aux_element, "aux element type")
    where = device_named(device)
    x, y = entry.axes
    designs: dict[str, int] = {}
    rows = []
    for second in y.values:
        row = []
        for first in x.values:
            try:
                desc = entry.descriptor(entry.place(first, second), kind, aux)
                chosen: Selection = entry.plan.select(None, desc, device=where).selection
            except NoVariant:
                row.append(-1)
            except (InvalidProblem, Unsupported):
                row.append(-2)
            else:
                row.append(designs.setdefault(chosen.variant.design, len(designs)))
        rows.append(tuple(row))
    return SelectionMap(
        entry.name,
        kind.value,
        None if aux is None else aux.value,
        where.name,
        x,
        y,
        tuple(designs),
        tuple(rows),
    )
