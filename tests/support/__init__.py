"""What tests of several rooms share: rows, models, errors, kills."""
