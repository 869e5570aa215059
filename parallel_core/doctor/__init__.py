"""What is here, what is wrong with it, why, and the command that mends it."""

from parallel_core.doctor.diagnosis import Diagnosis, examine
from parallel_core.doctor.finding import Explanation, Finding, Section, State

__all__ = ["Diagnosis", "Explanation", "Finding", "Section", "State", "examine"]
