"""A layer of experts on a GPU: routes, products with rows by index, and what lies between them."""
