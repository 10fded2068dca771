"""What the questions in the folder above share: how to measure in turn, and whom to measure against."""
