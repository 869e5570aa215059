"""The two ways of copying between MXNet's CPU devices: as the source's work or the destination's. Imports mxnet."""

import mxnet as mx
import numpy as np
from mxnet import np as mnp

__all__ = ["copy_by_destination", "copy_by_source"]


def copy_by_source(out: mnp.ndarray, x: mnp.ndarray) -> mnp.ndarray:
    """Queue MXNet's own copy of `x` to `out` and return `out`.

    Between CPUs it runs on the source's worker, behind its computation; to and from GPUs on workers for copies.
    """
    return x.copyto(out)


def copy_by_destination(out: mnp.ndarray, x: mnp.ndarray) -> mnp.ndarray:
    """Queue an operator that copies `x` to `out`, another CPU device's array, and return `out`.

    An operator runs on the device of its first operand. For scalars, booleans and nothing at all there is none: they
    are copied by the source.
    """
    if x.ndim == 0 or x.size == 0 or x.dtype == np.bool_:
        return x.copyto(out)
    everything = (None,) * x.ndim
    target = out.as_nd_ndarray()
    mx.nd._internal._slice_assign(
        target, x.as_nd_ndarray(), begin=everything, end=everything, step=everything, out=target
    )
    return out
