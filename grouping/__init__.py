"""Who is compared with whom: catalog, node identity, members, pools, blocks."""
