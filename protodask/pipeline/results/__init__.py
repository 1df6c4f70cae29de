"""What the steps leave behind, as plain values and in words."""
