"""What each backend can do: which operators have a kernel there, which are made of others, which fall back or are missing.

catalog     one overload on one backend, from what torch ships and the backend's file
reach       what composite operators call in the end, of those that some backend lacks
instead     what to write in place of an operator that a backend lacks; without torch
coverage    the three put together, for operators by name or as a program used them
"""
