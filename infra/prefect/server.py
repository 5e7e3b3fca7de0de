"""Start Prefect's server on loopback, so that only who knows its password runs anything on it.

Usage: python infra/prefect/server.py [PORT], with the password in PREFECT_API_AUTH_STRING
(user:password), which its workers and clients need as well.

Notable properties:
- `prefect server start` asks for no password, answers pages of any origin, and a run's parameters
  may name a command: any page in a browser of this machine could run commands.
- `Host` is checked: a page whose own name was changed to resolve to 127.0.0.1 gets no answer.
"""

from __future__ import annotations

import os
import sys

HOSTS = ["127.0.0.1", "localhost"]
PORT = 4200


def main() -> int:
    """Run the server until a signal; 2 where no password is set."""
    password = os.environ.get("PREFECT_API_AUTH_STRING")
    if not password:
        print(
            "error: PREFECT_API_AUTH_STRING is not set; give the server a password, user:password",
            file=sys.stderr,
        )
        return 2
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    # Prefect reads its settings as it is imported.
    os.environ["PREFECT_SERVER_API_AUTH_STRING"] = password
    origins = [f"http://{host}:{port}" for host in HOSTS]
    os.environ["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] = ",".join(origins)
    os.environ["PREFECT_UI_API_URL"] = f"{origins[0]}/api"
    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    app = create_app(final=True)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)
    uvicorn.run(app, host=HOSTS[0], port=port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
