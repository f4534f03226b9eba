"""Arrays as the library sees them: views of any array, addresses of thousands, alignment.

`Array` in memory of a back end, what a place of arrays is, and names of torch that are not public.
"""
