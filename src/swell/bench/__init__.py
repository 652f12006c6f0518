"""`swell bench`: which runs a benchmark has, the queue that trains them, and what a person sees meanwhile."""
