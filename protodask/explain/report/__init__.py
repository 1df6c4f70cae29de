"""The report: one HTML file on a model and the rows it is tried on, that loads nothing and opens from disk."""

from protodask.explain.report.content import Content
from protodask.explain.report.document import Rows, make_content, require_plots
from protodask.explain.report.page import render

__all__ = ["Content", "Rows", "make_content", "render", "require_plots"]
