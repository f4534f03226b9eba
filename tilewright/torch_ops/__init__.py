"""What torch must see of a product: operators, gradients, autocast, compilers. Imports torch."""
