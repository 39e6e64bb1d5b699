"""What operators do to groups."""
