"""Run a program as `__main__` with cuDNN off, whose stand-in library is too thin to plan a convolution."""

from __future__ import annotations

import runpy
import sys

import torch

if __name__ == "__main__":
    torch.backends.cudnn.enabled = False
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
