"""Backends that a test can ask for, and a compile cache of the test run's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from baracuda_registry.device import cuda_available

settings.register_profile("default", deadline=None, max_examples=60)
settings.load_profile("default")

# Compiled kernels of the tests are kept in the checkout, so that a second run is fast and the user's cache stays alone.
os.environ.setdefault(
    "BARACUDA_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "baracuda_registry")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests need a GPU: where one was asked for and there is none, they fail at set-up, not silently skip.

    The longest ones start first: the workers then end together.
    """
    long = [
        item
        for item in items
        if item.get_closest_marker("sanitizer") or item.get_closest_marker("xdist_group")
    ]
    items[:] = long + [item for item in items if item not in set(long)]
    for item in items:
        if item.get_closest_marker("gpu") and not cuda_available():
            item.add_marker(pytest.mark.usefixtures("_require_gpu"))


@pytest.fixture
def _require_gpu() -> None:
    pytest.fail("this test needs an NVIDIA GPU with CuPy; `make test` leaves it out")


def _backend(name: str) -> Any:
    from . import backends

    return {"host": backends.HostBackend, "cpu": backends.CpuBackend, "cuda": backends.CudaBackend}[name]()


@pytest.fixture(params=["host", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> Any:
    """Every place where plans run."""
    return _backend(request.param)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device_backend(request: pytest.FixtureRequest) -> Any:
    """The places that run generated kernels."""
    return _backend(request.param)


@pytest.fixture
def cuda() -> Any:
    """The GPU."""
    return _backend("cuda")


@pytest.fixture
def dry() -> Iterator[Any]:
    """A device on which nothing runs."""
    from baracuda_registry.plans.base import forget_plans

    from .dry import DryBackend

    forget_plans()
    yield DryBackend()
    forget_plans()
