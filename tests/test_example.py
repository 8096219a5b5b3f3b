"""The digits example: it learns, and its backward pass is the gradient of its forward pass."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_registry as br
from examples.train_digits import Network, Settings, load_digits

ROOT = Path(__file__).parent.parent


def _network(backend: Any, **changes: Any) -> Network:
    settings = Settings(element=br.ElementKind.F64, features=12, batch=5, **changes)
    xp = backend.cupy if backend.name == "cuda" else np
    return Network(settings, xp, backend.device)


@pytest.mark.parametrize("p", [1.0, 2.0, 2.5, 3.0])
def test_gradient_against_finite_differences(p: float, backend: Any) -> None:
    """Every parameter's gradient, along random directions, in f64.

    Quantization is a staircase, whose straight-through gradient is that of the weights plus a constant error: so the
    error of the starting point is frozen while the weights move.
    """
    network = _network(backend, p=p, window=4, stride=2)
    xp = network.xp
    images, labels, _, _ = load_digits()
    x, labels = xp.asarray(images[:5], np.float64), xp.asarray(labels[:5])
    _, saved = network.forward(x)
    error = saved.weight - network.parameters["out"]
    assert float(xp.abs(error).max()) > 0, "the weights were quantized"

    def loss() -> float:
        logits, kept = network.forward(x, quantization_error=error)
        return network.loss(logits, labels, kept)

    logits, kept = network.forward(x)
    network.loss(logits, labels, kept)
    grads = network.backward(labels, kept)
    assert set(grads) == set(network.parameters)
    rng = np.random.default_rng(1)
    for name, parameter in dict(network.parameters).items():
        for _ in range(3):
            direction = xp.asarray(rng.normal(size=parameter.shape))
            step = 1e-6
            values = []
            for sign in (1, -1):
                network.parameters[name] = parameter + sign * step * direction
                values.append(loss())
            network.parameters[name] = parameter
            numeric = (values[0] - values[1]) / (2 * step)
            analytic = float((grads[name] * direction).sum())
            assert analytic == pytest.approx(numeric, rel=2e-6, abs=1e-8), name


def test_demo_reaches_95_percent_within_a_minute() -> None:
    started = time.perf_counter()
    command = [sys.executable, "examples/train_digits.py", "--host"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**_environment(), "COLUMNS": "100"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "95 % reached" in done.stdout
    assert "DequantizePerGroupBackwardPlan" in done.stdout, "the variants chosen are shown"
    assert done.stdout.count("epoch") == Settings.epochs
    assert time.perf_counter() - started < 60


def test_too_little_training_is_a_failure() -> None:
    command = [sys.executable, "examples/train_digits.py", "--host", "--epochs", "1", "--element", "f64"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=_environment())
    assert done.returncode == 1
    assert "NOT reached" in done.stdout


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
