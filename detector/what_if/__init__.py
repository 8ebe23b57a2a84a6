"""What would other settings have said: the same recorded hours judged twice, and the alarms compared."""
