"""The story of one incident, for the vendor or the post-mortem: what is told, and the page that tells it."""
