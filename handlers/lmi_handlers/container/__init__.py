"""What `lmi serve` takes over from a DJLServing container: its command line, variables and places."""
