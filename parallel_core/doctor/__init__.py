"""What is installed on this machine, what is wrong with it, why, and the command that mends it."""

from parallel_core.doctor.examination import Examination, examine
from parallel_core.doctor.finding import Diagnosis, Finding, FindingState, Section

__all__ = ["Diagnosis", "Examination", "Finding", "FindingState", "Section", "examine"]
