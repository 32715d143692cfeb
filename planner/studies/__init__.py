"""Questions asked of many prices or plans at once."""
