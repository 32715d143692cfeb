"""Between the messages of planner.v1 and the types of the library, both ways."""
