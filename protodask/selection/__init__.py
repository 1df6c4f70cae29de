"""Choosing hyperparameters: folds, searches whose fits share their passes, and the one-standard-error rule."""
