"""Files to specs and back."""
