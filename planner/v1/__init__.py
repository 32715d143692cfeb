"""Messages and stubs of the gRPC protocol, generated from protos/planner/v1."""
