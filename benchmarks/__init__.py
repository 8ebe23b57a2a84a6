"""Speed and memory, measured against a real database; not part of the service."""
