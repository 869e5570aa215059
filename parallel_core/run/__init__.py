"""One experiment on one backend: from a `Request` to a `Result`."""
