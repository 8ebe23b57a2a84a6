"""The service between a real database and a proxy that makes trouble by a seed; see docs/reliability.md."""
