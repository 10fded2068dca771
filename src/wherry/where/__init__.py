"""What resides where: every tensor of an object by its path, the bytes, and what strayed.

`where` answers with an `Inventory`. `strays` says what `Module.to` leaves behind, `walk` goes through an object without running
its code.
"""
