"""An unmodified program under wherry: where to run it (`plan`), what to run (`program`, `command`), one run from its
beginning to its end (`attempt`) with its child processes (`children`, `onpath/`), how it ended (`result`, `uncaught`), and
the same program on every backend (`matrix`).

Nothing is imported here, so that a child process loads only what it needs.
"""
