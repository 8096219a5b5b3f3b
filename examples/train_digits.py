"""Train a small classifier on scikit-learn's handwritten digits through this library's plans.

    rows of the image as channels → dense → GroupNorm → LpPool1d → dense with per-group s8 fake quantization

Normalization, pooling and quantization, forward and backward, run through the plans; the dense layers are plain matrix
products.  The same program runs on a GPU (CuPy arrays, generated CUDA) and without one (NumPy arrays, the host backend).
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import baracuda_registry as br

ROWS, PIXELS, CLASSES = 8, 8, 10


@dataclass
class Settings:
    """Sizes of the network and of the training run."""

    features: int = 48
    groups: int = 4
    window: int = 4
    stride: int = 2
    p: float = 2.0
    quant_group: int = 8
    batch: int = 64
    epochs: int = 30
    rate: float = 4e-3
    seed: int = 0
    element: br.ElementKind = br.ElementKind.F32

    @property
    def pooled(self) -> int:
        """Length of a row after pooling."""
        return (self.features - self.window) // self.stride + 1


class Plans:
    """The plans for one batch size, with their workspace."""

    def __init__(self, s: Settings, batch: int, xp: Any, device: br.Device) -> None:
        shape = (batch, ROWS, s.features)
        quant = {
            "outer_size": CLASSES,
            "axis_size": ROWS * s.pooled,
            "group_size": s.quant_group,
            "input_element": s.element,
            "output_element": br.ElementKind.S8,
        }
        norm = {"input_shape": shape, "num_groups": s.groups, "element": s.element}
        pool = br.LpPool1dDescriptor(
            batch=batch,
            channels=ROWS,
            l_in=s.features,
            window=s.window,
            stride=s.stride,
            p=s.p,
            element=s.element,
        )
        codes = br.QuantizePerGroupDescriptor(**quant, q_min=-127, q_max=127)
        codes_back = br.QuantizePerGroupBackwardDescriptor(**quant, q_min=-127, q_max=127)

        def select(plan: Any, desc: Any) -> Any:
            return plan.select(None, desc, device=device)

        self.norm = select(br.GroupNormPlan, br.GroupNormDescriptor(**norm))
        self.norm_back = select(br.GroupNormBackwardPlan, br.GroupNormBackwardDescriptor(**norm))
        self.pool = select(br.LpPool1dPlan, pool)
        self.pool_back = select(br.LpPool1dBackwardPlan, pool)
        self.quantize = select(br.QuantizePerGroupPlan, codes)
        self.quantize_back = select(br.QuantizePerGroupBackwardPlan, codes_back)
        self.dequantize = select(br.DequantizePerGroupPlan, br.DequantizePerGroupDescriptor(**quant))
        self.dequantize_back = select(
            br.DequantizePerGroupBackwardPlan, br.DequantizePerGroupBackwardDescriptor(**quant)
        )
        needed = max(plan.workspace_size for plan in self.all())
        self.workspace = xp.empty(needed, np.uint8) if needed else None

    def all(self) -> list[Any]:
        """Every plan, in the order of a training step."""
        return [value for value in vars(self).values() if hasattr(value, "selection")]

    def run(self, plan: Any, args: Any) -> None:
        """Run on the current stream."""
        plan.run(None, self.workspace, args)


@dataclass
class Saved:
    """What the backward pass needs of a forward pass."""

    x: Any
    hidden: Any
    mean: Any
    rstd: Any
    normed: Any
    pooled: Any
    weight: Any
    scale: Any
    zero_point: Any
    probabilities: Any = None


@dataclass
class Network:
    """The classifier: parameters, forward and backward."""

    settings: Settings
    xp: Any
    device: br.Device
    parameters: dict[str, Any] = field(default_factory=dict)
    plans: dict[int, Plans] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s, rng = self.settings, np.random.default_rng(self.settings.seed)
        inner = ROWS * s.pooled
        initial = {
            "mix": rng.normal(0, PIXELS**-0.5, (ROWS, PIXELS, s.features)),
            "gamma": np.ones(ROWS),
            "beta": rng.normal(0, 0.1, ROWS),
            "out": rng.normal(0, inner**-0.5, (CLASSES, inner)),
            "bias": np.zeros(CLASSES),
        }
        self.parameters = {name: self.xp.asarray(value, s.element.dtype) for name, value in initial.items()}

    def plans_for(self, batch: int) -> Plans:
        """Plans are selected once per batch size."""
        if batch not in self.plans:
            self.plans[batch] = Plans(self.settings, batch, self.xp, self.device)
        return self.plans[batch]

    def fake_quantize(self, plans: Plans, weight: Any) -> tuple[Any, Any, Any]:
        """Codes of the weights and back: the dequantized weights, the scales and the zero points."""
        xp, s = self.xp, self.settings
        grouped = xp.abs(weight).reshape(CLASSES, -1, s.quant_group)
        scale = xp.ascontiguousarray(xp.maximum(grouped.max(axis=2) / 127, 1e-8).astype(weight.dtype))
        zero_point = xp.zeros(scale.shape, np.int32)
        codes, back = xp.empty(weight.shape, np.int8), xp.empty_like(weight)
        plans.run(
            plans.quantize,
            br.QuantizePerGroupArgs(input=weight, scale=scale, zero_point=zero_point, output=codes),
        )
        plans.run(
            plans.dequantize,
            br.DequantizePerGroupArgs(input=codes, scale=scale, zero_point=zero_point, output=back),
        )
        return back, scale, zero_point

    def forward(self, x: Any, *, quantization_error: Any = None) -> tuple[Any, Saved]:
        """Logits [batch, classes] of images [batch, rows, pixels].

        With `quantization_error`, the last layer's weights are used as they are plus that constant, instead of being
        quantized: the function whose exact gradient the straight-through backward is.
        """
        xp, s, p = self.xp, self.settings, self.parameters
        batch = x.shape[0]
        plans = self.plans_for(batch)
        hidden = xp.ascontiguousarray(xp.matmul(x.transpose(1, 0, 2), p["mix"]).transpose(1, 0, 2))
        normed = xp.empty_like(hidden)
        mean, rstd = (xp.empty(batch * s.groups, s.element.accumulator.dtype) for _ in range(2))
        norm = br.GroupNormArgs(
            x=hidden, y=normed, saved_mean=mean, saved_rstd=rstd, gamma=p["gamma"], beta=p["beta"]
        )
        plans.run(plans.norm, norm)
        pooled = xp.empty((batch, ROWS, s.pooled), hidden.dtype)
        plans.run(plans.pool, br.LpPool1dFwArgs(x=normed, y=pooled))
        if quantization_error is None:
            weight, scale, zero_point = self.fake_quantize(plans, p["out"])
        else:
            weight, scale, zero_point = p["out"] + quantization_error, None, None
        logits = pooled.reshape(batch, -1) @ weight.T + p["bias"]
        return logits, Saved(x, hidden, mean, rstd, normed, pooled, weight, scale, zero_point)

    def loss(self, logits: Any, labels: Any, saved: Saved) -> float:
        """Mean cross-entropy; keeps the probabilities for the backward pass."""
        xp = self.xp
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probabilities = shifted - xp.log(xp.exp(shifted).sum(axis=1, keepdims=True))
        saved.probabilities = xp.exp(log_probabilities)
        return -float(log_probabilities[xp.arange(len(labels)), labels].mean())

    def backward(self, labels: Any, saved: Saved) -> dict[str, Any]:
        """Gradients of the mean loss with respect to every parameter."""
        xp, p = self.xp, self.parameters
        batch = saved.x.shape[0]
        plans = self.plans_for(batch)
        d_logits = saved.probabilities.copy()
        d_logits[xp.arange(batch), labels] -= 1
        d_logits /= batch
        d_pooled = xp.ascontiguousarray((d_logits @ saved.weight).reshape(saved.pooled.shape))
        d_weight = xp.ascontiguousarray(d_logits.T @ saved.pooled.reshape(batch, -1))
        grads = {"bias": d_logits.sum(axis=0), "out": self.straight_through(plans, d_weight, saved)}

        d_normed = xp.empty_like(saved.normed)
        plans.run(
            plans.pool_back, br.LpPool1dBwArgs(x=saved.normed, y=saved.pooled, dy=d_pooled, dx=d_normed)
        )
        d_gamma, d_beta = xp.empty_like(p["gamma"]), xp.empty_like(p["beta"])
        d_hidden = d_normed  # in place: dx may be the same array as dy
        norm = br.GroupNormBackwardArgs(
            dy=d_normed,
            x=saved.hidden,
            saved_mean=saved.mean,
            saved_rstd=saved.rstd,
            dx=d_hidden,
            gamma=p["gamma"],
            dgamma=d_gamma,
            dbeta=d_beta,
        )
        plans.run(plans.norm_back, norm)
        grads["gamma"], grads["beta"] = d_gamma, d_beta
        grads["mix"] = xp.matmul(saved.x.transpose(1, 2, 0), d_hidden.transpose(1, 0, 2))
        return grads

    def straight_through(self, plans: Plans, d_weight: Any, saved: Saved) -> Any:
        """Gradient through dequantize and quantize."""
        if saved.scale is None:
            return d_weight
        xp, weight = self.xp, self.parameters["out"]
        d_codes, d_input = xp.empty_like(d_weight), xp.empty_like(d_weight)
        dequantize = br.DequantizePerGroupBackwardArgs(d_output=d_weight, scale=saved.scale, d_input=d_codes)
        plans.run(plans.dequantize_back, dequantize)
        quantize = br.QuantizePerGroupBackwardArgs(
            input=weight, scale=saved.scale, zero_point=saved.zero_point, d_output=d_codes, d_input=d_input
        )
        plans.run(plans.quantize_back, quantize)
        return d_input


@dataclass
class Adam:
    """Adam with bias correction and a cosine schedule."""

    network: Network
    steps: int
    moments: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    step: int = 0

    def update(self, grads: dict[str, Any]) -> None:
        """One step."""
        xp = self.network.xp
        self.step += 1
        rate = self.network.settings.rate * 0.5 * (1 + np.cos(np.pi * self.step / self.steps))
        for name, grad in grads.items():
            zero = xp.zeros_like(grad)
            first, second = self.moments.get(name, (zero, zero))
            first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad * grad
            self.moments[name] = (first, second)
            scale = rate / (1 - 0.9**self.step)
            root = xp.sqrt(second / (1 - 0.999**self.step)) + 1e-8
            parameter = self.network.parameters[name]
            self.network.parameters[name] = (parameter - scale * first / root).astype(parameter.dtype)


def load_digits(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images [n, 8, 8] scaled to about unit variance and labels: training and test halves of a fixed shuffle."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = (images[order].reshape(-1, ROWS, PIXELS) - 8) / 6, labels[order]
    split = len(images) * 3 // 4
    return images[:split], labels[:split], images[split:], labels[split:]


def accuracy(network: Network, images: Any, labels: Any) -> float:
    """Share of images whose largest logit is the label's."""
    logits, _ = network.forward(images)
    return float((logits.argmax(axis=1) == labels).mean())


def train(network: Network, console: Any) -> float:
    """Train and return the test accuracy."""
    from rich.progress import Progress

    s, xp = network.settings, network.xp
    train_x, train_y, test_x, test_y = load_digits(s.seed)
    train_x, test_x = (xp.asarray(part, s.element.dtype) for part in (train_x, test_x))
    train_y, test_y = xp.asarray(train_y), xp.asarray(test_y)
    batches = len(train_x) // s.batch
    optimizer = Adam(network, s.epochs * batches)
    rng = np.random.default_rng(s.seed)
    with Progress(console=console) as progress:
        task = progress.add_task("training", total=s.epochs * batches)
        for epoch in range(s.epochs):
            order, total = xp.asarray(rng.permutation(len(train_x))), 0.0
            for index in range(batches):
                chosen = order[index * s.batch : (index + 1) * s.batch]
                logits, saved = network.forward(xp.ascontiguousarray(train_x[chosen]))
                labels = train_y[chosen]
                total += network.loss(logits, labels, saved)
                optimizer.update(network.backward(labels, saved))
                progress.advance(task)
            reached = accuracy(network, test_x, test_y)
            progress.console.print(
                f"epoch {epoch + 1:3d}  loss {total / batches:.4f}  test accuracy {reached:.3f}"
            )
    return reached


def show_choices(network: Network, console: Any) -> None:
    """Print each plan's variant and why it was chosen."""
    from rich.table import Table

    table = Table(title=f"variants chosen on {network.device.name}", show_lines=False)
    for heading in ("plan", "variant", "why"):
        table.add_column(heading, overflow="fold")
    for plan in network.plans_for(network.settings.batch).all():
        trace = plan.selection.trace
        reason = f"best rank of {len(trace.candidates)} eligible; {len(trace.rejected)} rejected"
        if trace.rejected:
            reason += f", e.g. {trace.rejected[0].variant.design}: {trace.rejected[0].reasons[0]}"
        table.add_row(type(plan).__name__, f"{plan.variant.sku}/{plan.variant.design}", reason)
    console.print(table)


def main() -> int:
    """Train, print what ran and how well; 0 when the test accuracy is 95 % or more."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=Settings.epochs)
    parser.add_argument("--element", choices=("f32", "f64"), default="f32")
    parser.add_argument("--host", action="store_true", help="use the host backend even if there is a GPU")
    options = parser.parse_args()
    device = br.Device.host() if options.host else br.Device.current()
    settings = Settings(epochs=options.epochs, element=br.ElementKind.of(options.element))
    network = Network(settings, device.array_module(), device)
    console = Console()
    show_choices(network, console)
    started = time.perf_counter()
    reached = train(network, console)
    seconds = time.perf_counter() - started
    verdict = "reached" if reached >= 0.95 else "NOT reached"
    console.print(f"test accuracy {reached:.1%} on {device.name} in {seconds:.1f} s; 95 % {verdict}")
    return 0 if reached >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
