"""Arrays as the library sees them: views of any array, addresses of thousands, alignment."""
