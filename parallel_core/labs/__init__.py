"""Labs: readers build an engine themselves, on NumPy, and a grader runs it.

The folder of a lab holds its handout and its skeleton.
"""

from parallel_core.labs.engine import Engine, Task

__all__ = ["Engine", "Task"]
