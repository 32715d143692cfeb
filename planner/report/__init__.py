"""Plans for people: tables for a terminal."""
