"""All plots in one place: each takes plain results and returns a matplotlib figure, made without pyplot."""

from protodask.explain.plot_budget import budget_plot
from protodask.explain.plot_quality import calibration_plot, confusion_plot, familiarity_plot, importance_plot
from protodask.explain.plot_space import map_plot, scatter_plot, surface_plot
from protodask.explain.plot_training import search_plot, training_plot

__all__ = [
    "budget_plot",
    "calibration_plot",
    "confusion_plot",
    "familiarity_plot",
    "importance_plot",
    "map_plot",
    "scatter_plot",
    "search_plot",
    "surface_plot",
    "training_plot",
]
