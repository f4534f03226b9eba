"""What a person reads: measured ladders, tables, plots. The library never imports it."""
