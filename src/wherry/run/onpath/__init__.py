"""The folder that `wherry run` puts first on PYTHONPATH, so that child Python processes take part.

Python imports `sitecustomize` from there when it starts. The folder takes itself off `sys.path` at once.
"""
