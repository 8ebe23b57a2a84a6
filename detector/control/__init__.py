"""What operators say: acknowledgements, false alarms, mutes, repairs, and the trail of all that."""
