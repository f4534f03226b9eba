"""What every engine for GPUs needs of the machine: GPUs, programs, launches, graphs, tables."""
