"""Whether the scheduler or worker in this container answers: HEALTH_PORT is that of its HTTP server on loopback.

A container without one, such as the driver's, counts as healthy.
"""

import os
import sys
import urllib.request

SECONDS = 5


def main() -> int:
    """0 if it answers, else 1."""
    port = os.environ.get("HEALTH_PORT")
    if not port:
        return 0
    try:
        # Loopback is never asked through a proxy, which the environment of containers may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{int(port)}/health", timeout=SECONDS) as answer:
            return 0 if answer.status == 200 else 1
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
