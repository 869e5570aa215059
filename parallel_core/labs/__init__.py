"""Labs: readers build an engine themselves, on NumPy, and a grader runs it.

Their folders hold handout and skeleton.
"""

from parallel_core.labs.engine import Engine, Task

__all__ = ["Engine", "Task"]
