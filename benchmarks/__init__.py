"""Device times of every plan beside its peers, as shares of the copy bandwidth measured in the same process."""
