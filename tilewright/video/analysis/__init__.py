"""What a film is like: measures of its pictures, its cuts, what they add up to, what would help."""
