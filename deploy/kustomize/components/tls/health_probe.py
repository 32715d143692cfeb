"""Ask the server in this pod how it is, with the pod's own certificate; exit 0 if it serves.

Of the standard library and gRPC alone, so that it starts fast: the request and its answer are a few
bytes each.
"""

import argparse
import sys
from pathlib import Path

import grpc

SERVING = 1


def main() -> int:
    """Exit status: 0 it serves, 1 it does not, or does not answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="localhost:50051")
    parser.add_argument("--service", default="", help="empty: the process as a whole")
    parser.add_argument("--tls", type=Path, default=Path("/etc/planner/tls"))
    parser.add_argument("--name", default="planner", help="a DNS name in the certificate")
    parser.add_argument("--timeout-s", type=float, default=5.0)
    given = parser.parse_args()
    credentials = grpc.ssl_channel_credentials(
        *((given.tls / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    )
    options = [("grpc.ssl_target_name_override", given.name), ("grpc.enable_http_proxy", 0)]
    name = given.service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    with grpc.secure_channel(given.address, credentials, options) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
        )
        try:
            answer = check(request, timeout=given.timeout_s)
        except grpc.RpcError as error:
            print(error.code().name, error.details(), file=sys.stderr)
            return 1
    # HealthCheckResponse: field 1 is the status, absent where it is 0.
    return 0 if answer[:2] == bytes([0x08, SERVING]) else 1


if __name__ == "__main__":
    sys.exit(main())
