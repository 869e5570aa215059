"""A page that shows timelines: one file without a network, to zoom, to search, and with the figures in tables."""

from parallel_core.report.timeline_page.page import write_timeline_page

__all__ = ["write_timeline_page"]
