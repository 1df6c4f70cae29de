"""What lies at a path, as plain values."""
