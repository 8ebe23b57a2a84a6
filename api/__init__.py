"""The REST interface: reads the store and the latest evaluation, never scores."""
