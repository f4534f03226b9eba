"""What is true of a device, a product and a kernel: frozen records that everything above reads."""
