"""JAX's variants. Importing this module does not import jax."""

from dataclasses import replace

from backends.registry.variants import Variant

STEP_COMPILED = Variant(
    "step-compiled",
    "what is compiled together",
    "What is launched on a device until a function is launched again, or a value is needed elsewhere, is compiled and "
    "runs as one program, in an order of XLA's: look for one span for a training step, named after its functions, and "
    "for nothing before the step has ended in Python.",
    kinds=("cpu",),
    elsewhere="only JAX compiles several launches as one program",
)
VARIANTS: tuple[Variant, ...] = (
    replace(
        STEP_COMPILED,
        name="launch-compiled",
        meaning="Every launch is a program by itself: look for one span for each launch, in the order of the launches.",
        default=True,
    ),
    STEP_COMPILED,
)
