"""The report: one HTML file that needs no network, for people who would rather look."""

from parallel_core.report.page import render

__all__ = ["render"]
