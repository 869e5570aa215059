"""Take steps with JAX, in the ordinary way; nothing here knows of parallel-core.

plain_jax.py 12            # so many steps
plain_jax.py 12 FOLDER     # recorded by the program itself
"""

import sys
from contextlib import nullcontext

import jax
import jax.numpy as jnp

number_of_steps = int(sys.argv[1])
step = jax.jit(lambda weights: weights - 0.1 * jnp.tanh(weights @ weights))
weights = jnp.ones((64, 64))
recorded = jax.profiler.trace(sys.argv[2]) if len(sys.argv) > 2 else nullcontext()
with recorded:
    for number in range(number_of_steps):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            weights = step(weights)
    weights.block_until_ready()
print("done")
