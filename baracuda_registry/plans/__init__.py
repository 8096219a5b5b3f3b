"""The plans, one file an operation; `base` holds the protocol they share."""
