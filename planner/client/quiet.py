"""The core of gRPC has a log of its own on stderr; what matters of it is in our errors.

It looks at its setting when it is imported, so this module is imported before it.
"""

from __future__ import annotations

import os

__all__ = ["VERBOSITY"]

VERBOSITY = os.environ.setdefault("GRPC_VERBOSITY", "NONE")
"""What the core logs; what the user has set stays."""
