"""Where servers are, and connections to them: names, secrets, TLS, retries."""
