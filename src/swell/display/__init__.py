"""What a person sees of a run: the console, its words, and sinks for trackers."""
