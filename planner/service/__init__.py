"""The planning server: gRPC in front of the same functions that the library offers."""
