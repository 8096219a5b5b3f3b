"""What the functions share: a bounded memo of prepared problems, and one way to run them.

Everything that follows from shape, dtype, device and options (descriptor, plan, workspace, dtypes of the results) is
prepared once and remembered; a call in its stride costs one look-up by a tuple, the allocations, and `plan.run`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..elements import ElementKind
from ..errors import BaracudaError, InvalidProblem, Unsupported
from ..plans.base import forget_with_plans
from .libraries import Library

MOST_PROBLEMS = 1024
"""Problems that a function remembers, the least recently used forgotten first."""

_Prepare = TypeVar("_Prepare", bound=Callable[..., Any])


class Prepared(NamedTuple):
    """A problem that is ready to run.

    Attributes:
        plan: the plan.
        run: its `run`.
        space: template of its workspace, None without.
        templates: of results, in the function's order.
        views: whether plans take views of the library's arrays instead of these.
    """

    plan: Any
    run: Callable[[Any, Any, Any], None]
    space: Any
    templates: tuple[Any, ...]
    views: bool


def remembered(prepare: _Prepare) -> _Prepare:
    """A bounded memo for a function of hashable arguments; forgotten when plans are selected anew."""
    memo: Any = functools.lru_cache(maxsize=MOST_PROBLEMS, typed=True)(prepare)
    forget_with_plans(memo.cache_clear)
    return memo  # type: ignore[no-any-return]


def prepare(
    function: str,
    names: Mapping[str, str],
    library: Library,
    place: Any,
    plan_type: Any,
    descriptor: Callable[[], Any],
    results: Callable[[Any], Sequence[tuple[Sequence[int], ElementKind]]],
) -> Prepared:
    """Select the plan of a descriptor on the device of a place.

    Args:
        function: name of the function, for messages.
        names: the function's arguments by the plan's fields.
        library: whose arrays it will take.
        place: where they are.
        plan_type: the plan.
        descriptor: makes the problem.
        results: shape and element of each result, from the problem.

    Raises:
        BaracudaError: whatever is wrong, in the function's terms.
    """
    try:
        plan = plan_type.select(None, descriptor(), device=library.device(place))
    except BaracudaError as error:
        rename(error, plan_type.__name__, function, names)
        raise

    def template(shape: Sequence[int], element: ElementKind) -> Any:
        return library.template(shape, library.dtype(element), place)

    space = template((plan.workspace_size,), ElementKind.U8) if plan.workspace_size else None
    templates = tuple(template(*result) for result in results(plan.descriptor))
    return Prepared(plan, plan.run, space, templates, library.tracks and plan.device.is_host)


def element_of(function: str, name: str, dtype: Any) -> ElementKind:
    """The element of an array's dtype.

    Raises:
        Unsupported: there is none.
    """
    try:
        return ElementKind.of(dtype)
    except Unsupported:
        raise Unsupported(
            f"{function}: {name} has dtype {dtype}, want float32, float64, float16 or bfloat16"
        ) from None


def launch(function: str, names: Mapping[str, str], library: Library, ready: Prepared, args: Any) -> None:
    """Run a prepared problem on the caller's current stream, with workspace from the library's own allocator."""
    try:
        ready.run(None, None if ready.space is None else library.like(ready.space), args)
    except BaracudaError as error:
        rename(error, type(ready.plan).__name__, function, names)
        raise


def rename(error: BaracudaError, plan: str, function: str, names: Mapping[str, str]) -> None:
    """Put an error's text in the words of a function: its own name, and its argument's for the plan's field."""
    rest = str(error).removeprefix(f"{plan}: ")
    field = re.match(r"\w+", rest)
    if field is not None and field[0] in names:
        rest = names[field[0]] + rest[field.end() :]
    rest = rest.replace("(call .contiguous()", "(pass copy=True, or call .contiguous()")
    error.args = (f"{function}: {rest}",)


def refuse_gradients(function: str, **arguments: Any) -> None:
    """Raise for a tensor that asks for a gradient, which these functions do not record.

    Raises:
        InvalidProblem: naming the argument.
    """
    for name, value in arguments.items():
        if getattr(value, "requires_grad", False):
            raise InvalidProblem(
                f"{function}: {name} requires grad, and this function records none; use baracuda_registry.torch,"
                " torch.no_grad(), or .detach()"
            )


def bundle(kind: Any, **fields: Any) -> Any:
    """An argument bundle; the `__init__` of a frozen dataclass calls a function for each field, which costs three times this."""
    made = object.__new__(kind)
    made.__dict__.update(fields)
    return made


def contiguous(library: Library, *arrays: Any) -> tuple[Any, ...]:
    """Arrays of the library as they are where they are C-contiguous, else as copies that are; others untouched."""
    return tuple(
        library.contiguous(value) if value is not None and library.owns(value) else value for value in arrays
    )


def same_memory(function: str, library: Library, name: str, array: Any, shape: tuple[int, ...]) -> Any:
    """A contiguous array as another shape of the same memory.

    Raises:
        InvalidProblem: it is not contiguous, or has another number of elements.
    """
    got = getattr(array, "shape", None)
    if got is None or got == shape:
        return array  # what is no array is for the plan to refuse
    if not library.is_contiguous(array):
        raise InvalidProblem(
            f"{function}: {name} is not C-contiguous, want a contiguous array (pass copy=True to have it copied)"
        )
    try:
        return array.reshape(shape)
    except (ValueError, RuntimeError, TypeError):
        raise InvalidProblem(f"{function}: {name} has shape {tuple(got)}, want {shape}") from None
