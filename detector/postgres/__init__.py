"""The store in a PostgreSQL server, for teams that run several replicas; needs the extra ``postgres``."""
