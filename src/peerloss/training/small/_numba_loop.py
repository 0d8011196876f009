"""The fast path on the CPU: all steps of one small net in one compiled loop (needs numba).

All data of a step stay in the first-level cache. Arrays are (units, batch), so that every inner loop runs
over a batch and is vectorised. Arithmetic has the precision of the arrays. The gradients are the closed forms
of the losses in ``peerloss.functional``; tests compare them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numba
import numpy as np

#: Permitted reorderings. NaN and infinity keep their meaning, so that divergence is detected.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_F = TypeVar("_F", bound=Callable[..., Any])


def _jit(function: _F) -> _F:
    """Compile on first use (seconds); cache the result on disk if a folder is writable."""
    compile_with = partial(numba.njit, fastmath=_FAST, nogil=True, error_model="numpy")
    try:
        compiled = compile_with(cache=True)(function)
    except RuntimeError:  # no cache folder is writable
        compiled = compile_with()(function)
    return cast("_F", compiled)


#: Objective (family or base) → code.
CODES = {
    "cross_entropy": 0, "sigmoid": 1, "mae": 2, "gce": 3, "squared": 4,
    "unhinged": 5, "ramp": 6, "hinge": 7, "forward": 8,
}  # fmt: skip


@_jit
def _add_products(out: Any, w: Any, x: Any) -> None:
    """Add w @ x to out, two outputs and four inputs at a time."""
    n_out, n_in = w.shape
    batch = x.shape[1]
    for o in range(0, n_out - 1, 2):
        r0, r1 = out[o], out[o + 1]
        i = 0
        while i + 3 < n_in:
            a0, a1, a2, a3 = w[o, i], w[o, i + 1], w[o, i + 2], w[o, i + 3]
            c0, c1, c2, c3 = w[o + 1, i], w[o + 1, i + 1], w[o + 1, i + 2], w[o + 1, i + 3]
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            for b in range(batch):
                r0[b] += a0 * x0[b] + a1 * x1[b] + a2 * x2[b] + a3 * x3[b]
                r1[b] += c0 * x0[b] + c1 * x1[b] + c2 * x2[b] + c3 * x3[b]
            i += 4
        while i < n_in:
            a0, c0, x0 = w[o, i], w[o + 1, i], x[i]
            for b in range(batch):
                r0[b] += a0 * x0[b]
                r1[b] += c0 * x0[b]
            i += 1
    if n_out % 2:
        r0 = out[n_out - 1]
        for i in range(n_in):
            a0, x0 = w[n_out - 1, i], x[i]
            for b in range(batch):
                r0[b] += a0 * x0[b]


@_jit
def _outer_products(out: Any, d: Any, x: Any) -> None:
    """Write d @ x.T into out, four inputs at a time."""
    real = x.dtype.type
    n_out, n_in = out.shape
    batch = x.shape[1]
    for o in range(n_out):
        d0 = d[o]
        i = 0
        while i + 3 < n_in:
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            s0, s1, s2, s3 = real(0), real(0), real(0), real(0)
            for b in range(batch):
                s0 += d0[b] * x0[b]
                s1 += d0[b] * x1[b]
                s2 += d0[b] * x2[b]
                s3 += d0[b] * x3[b]
            out[o, i], out[o, i + 1], out[o, i + 2], out[o, i + 3] = s0, s1, s2, s3
            i += 4
        while i < n_in:
            s0, x0 = real(0), x[i]
            for b in range(batch):
                s0 += d0[b] * x0[b]
            out[o, i] = s0
            i += 1


@_jit
def _softmax(z: Any, p: Any) -> None:
    """Write the softmax of logits (K, batch) into p; one row z stands for the two rows (0, z)."""
    real = p.dtype.type
    n_classes, batch = p.shape
    if z.shape[0] == 1:
        for b in range(batch):
            small = real(math.exp(-abs(z[0, b])))
            large = real(1) / (real(1) + small)
            positive = z[0, b] > 0
            p[1, b] = large if positive else small * large
            p[0, b] = small * large if positive else large
        return
    for b in range(batch):
        top = z[0, b]
        for k in range(1, n_classes):
            top = max(top, z[k, b])
        total = real(0)
        for k in range(n_classes):
            p[k, b] = math.exp(z[k, b] - top)
            total += p[k, b]
        for k in range(n_classes):
            p[k, b] /= total


@_jit
def _probability_gradient(code: int, eps: float, gce_q: float, c: Any, p: Any, g: Any) -> None:
    """Losses φ(p_k): with u_k = c_k φ'(p_k) p_k the gradient is u_j − p_j Σ_k u_k."""
    real = p.dtype.type
    n_classes, batch = p.shape
    e = real(eps)
    for b in range(batch):
        total = real(0)
        for k in range(n_classes):
            total += c[b, k]
        u_sum = real(0)
        for k in range(n_classes):
            u = -c[b, k]
            if code == 0:
                if e > 0:
                    u *= p[k, b] / (p[k, b] + e)
            elif code == 1:
                u *= p[k, b]
            elif code == 2:
                u *= real(2) * p[k, b]
            elif code == 3:
                u *= real(math.pow(p[k, b], real(gce_q)))
            else:
                u = real(2) * p[k, b] * (u + total * p[k, b])
            g[k, b] = u
            u_sum += u
        for k in range(n_classes):
            g[k, b] -= p[k, b] * u_sum


@_jit
def _margin_gradient(code: int, c: Any, z: Any, g: Any) -> None:  # noqa: C901 (one compiled loop)
    """Unhinged (5), ramp (6), hinge (7): losses of m_k = z_k − log Σ_{j≠k} e^{z_j}; z has all K rows."""
    real = z.dtype.type
    n_classes, batch = z.shape
    g[:] = 0
    for b in range(batch):
        for k in range(n_classes):
            first = 1 if k == 0 else 0
            top = z[first, b]
            for j in range(n_classes):
                if j != k:
                    top = max(top, z[j, b])
            total = real(0)
            for j in range(n_classes):
                if j != k:
                    total += real(math.exp(z[j, b] - top))
            margin = z[k, b] - top - real(math.log(total))
            slope = real(0)
            if code == 6:
                if -1 <= margin <= 1:
                    slope = real(-0.5) * c[b, k]
            elif code == 5 or margin <= 1:
                slope = -c[b, k]
            g[k, b] += slope
            for j in range(n_classes):
                if j != k:
                    g[j, b] -= slope * real(math.exp(z[j, b] - top)) / total


@_jit
def _forward_gradient(c: Any, scale: Any, z: Any, p: Any, g: Any) -> None:
    """−log (pT)_y: p − softmax(z + log T[:, y]); c holds log T[:, y], z has all K rows."""
    real = z.dtype.type
    n_classes, batch = z.shape
    for b in range(batch):
        top = z[0, b] + c[b, 0]
        for k in range(1, n_classes):
            top = max(top, z[k, b] + c[b, k])
        total = real(0)
        for k in range(n_classes):
            total += real(math.exp(z[k, b] + c[b, k] - top))
        for k in range(n_classes):
            g[k, b] = scale[b] * (p[k, b] - real(math.exp(z[k, b] + c[b, k] - top)) / total)


@_jit
def _adam(params: Any, g: Any, m: Any, v: Any, decay: Any, rate: float, step: int) -> None:
    real = params.dtype.type
    size = real(rate / (1.0 - 0.9**step))
    correct = real(1.0 / math.sqrt(1.0 - 0.999**step))
    for j in range(params.shape[0]):
        m[j] += real(0.1) * (g[j] - m[j])
        v[j] += real(0.001) * (g[j] * g[j] - v[j])
        update = size * m[j] / (real(math.sqrt(v[j])) * correct + real(1e-8))
        params[j] -= decay[j] * params[j] + update


@_jit
def _pass_forward(params: Any, sizes: Any, act: Any) -> None:
    """Write the activations (units, batch) of all layers after the inputs."""
    real = act.dtype.type
    n_layers = sizes.shape[0] - 1
    at, unit = 0, 0
    for layer in range(n_layers):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        w = params[at : at + n_in * n_out].reshape(n_out, n_in)
        h = act[unit + n_in : unit + n_in + n_out]
        for o in range(n_out):
            h[o, :] = params[at + n_in * n_out + o]
        _add_products(h, w, act[unit : unit + n_in])
        if layer < n_layers - 1:
            for o in range(n_out):
                for b in range(h.shape[1]):
                    h[o, b] = max(h[o, b], real(0))
        at += (n_in + 1) * n_out
        unit += n_in


@_jit
def _pass_backward(params: Any, sizes: Any, act: Any, delta: Any, g: Any) -> None:
    """Write the gradient of all parameters, given that of the outputs in the last rows of delta."""
    real = act.dtype.type
    at, unit = params.shape[0], act.shape[0] - sizes[-1]
    for layer in range(sizes.shape[0] - 2, -1, -1):
        n_in, n_out = sizes[layer], sizes[layer + 1]
        at -= (n_in + 1) * n_out
        d = delta[unit : unit + n_out]
        unit -= n_in
        _outer_products(g[at : at + n_in * n_out].reshape(n_out, n_in), d, act[unit : unit + n_in])
        for o in range(n_out):
            g[at + n_in * n_out + o] = d[o].sum()
        if layer > 0:
            below = delta[unit : unit + n_in]
            below[:] = 0
            _add_products(below, params[at : at + n_in * n_out].reshape(n_out, n_in).T, d)
            for o in range(n_in):
                for b in range(d.shape[1]):
                    below[o, b] = below[o, b] if act[unit + o, b] > 0 else real(0)


@_jit
def train_block(
    X: Any, rows: Any, coefficients: Any, scale: Any, sizes: Any, state: Any, decay: Any,
    rate: float, code: int, eps: float, gce_q: float, step: int,
) -> None:  # fmt: skip
    """Take ``len(rows)`` steps of AdamW; ``state`` holds parameters and the two moments, (3, P).

    ``gce_q`` is an argument, because the cache on disk would keep the value of a constant from another file.
    """
    n_steps, batch = rows.shape
    n_classes, n_out = coefficients.shape[2], sizes[-1]
    units = sizes.sum()
    act = np.empty((units, batch), X.dtype)
    delta = np.empty((units, batch), X.dtype)
    z = np.zeros((n_classes, batch), X.dtype)
    p = np.empty((n_classes, batch), X.dtype)
    dz = np.empty((n_classes, batch), X.dtype)
    g = np.empty_like(state[0])
    for s in range(n_steps):
        for b in range(batch):
            x = X[rows[s, b]]
            for i in range(x.shape[0]):
                act[i, b] = x[i]
        _pass_forward(state[0], sizes, act)
        z[n_classes - n_out :] = act[units - n_out :]
        _softmax(act[units - n_out :], p)
        if code <= 4:
            _probability_gradient(code, eps, gce_q, coefficients[s], p, dz)
        elif code <= 7:
            _margin_gradient(code, coefficients[s], z, dz)
        else:
            _forward_gradient(coefficients[s], scale[s], z, p, dz)
        delta[units - n_out :] = dz[n_classes - n_out :]
        _pass_backward(state[0], sizes, act, delta, g)
        _adam(state[0], g, state[1], state[2], decay, rate, step + s + 1)
