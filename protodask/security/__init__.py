"""Certificates of a cluster, and its check-up."""
