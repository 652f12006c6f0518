"""How much memory a run will take, and what gives way where that is too much."""
