"""`make bench`: how fast Swell trains, beside others and beside what the machine can do."""
