"""Decisions that are optimal for the loss people are judged by."""

from protodask.decisions.decision import Cut, Decision
from protodask.decisions.losses import LOSS_NAMES, Loss, as_loss

__all__ = ["LOSS_NAMES", "Cut", "Decision", "Loss", "as_loss"]
