"""Maximum-margin classifiers from features that are known only roughly."""
