"""Tells on-call's tools of suspects and group events."""
