"""A program under `wherry run` is what it is under Python: same output, same errors, same exit status."""

from __future__ import annotations

import re
import sys
import zipfile

import pytest

from wherry.errors import ScriptError, ScriptMissing
from wherry.run.program import Command, Module, Script, find

# Each is run by Python and by wherry, and must do the same. None imports torch: a rehearsal is tested elsewhere.
PROGRAMS = {
    "names of the main module": """
        "A docstring."
        import sys
        for name in ("__name__", "__doc__", "__package__", "__spec__", "__annotations__", "__file__", "__cached__"):
            print(name, globals()[name])
        print(type(__loader__), __loader__.name, __loader__.path, type(__builtins__))
        print(list(globals()), sys.modules["__main__"].__dict__ is globals())
    """,
    "argv and path": """
        import sys
        print(sys.argv, sys.path[0], sys.path[1:].count(sys.path[0]), sys.orig_argv[1:])
    """,
    "the program's own neighbours win": """
        import neighbour
        print(neighbour.__file__)
    """,
    "excepthook, signals and warnings are untouched": """
        import sys, threading, warnings
        print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
        print(warnings.filters, sys.flags)
        def f(): warnings.warn("old", DeprecationWarning)
        f()
    """,
    "pickle": """
        import pickle
        class Point: pass
        print(pickle.dumps(Point()), type(pickle.loads(pickle.dumps(Point()))) is Point)
    """,
    "source of the main module": """
        import inspect
        def f(): return 1  # with its comment
        print(inspect.getsource(f), inspect.getsourcefile(f), inspect.getmodule(f))
    """,
    "exit 3": "import sys; sys.exit(3)",
    "exit 0": "raise SystemExit",
    "exit with a large number": "raise SystemExit(2**70)",
    "exit with a negative number": "raise SystemExit(-3)",
    "exit with True": "raise SystemExit(True)",
    "exit with a text": "import sys; sys.exit('that did not work')",
    "exit with an empty text": "import sys; sys.exit('')",
    "exit in a thread": """
        import sys, threading
        threading.Thread(target=sys.exit, args=(4,)).start()
    """,
    "uncaught exception": """
        def f(x): return x.nope
        f(1)
    """,
    "exception with notes": """
        try:
            1 / 0
        except ZeroDivisionError as err:
            if hasattr(err, "add_note"):
                err.add_note("a note")
            raise
    """,
    "chained exceptions": """
        def f():
            try:
                {}["x"]
            except KeyError as err:
                raise ValueError("second") from err
        try:
            f()
        except ValueError:
            raise RuntimeError("third")
    """,
    "exception of the program's own class": """
        class Odd(Exception):
            def __str__(self): raise TypeError
        raise Odd
    """,
    "exception without a text": "raise KeyboardInterrupt if False else OSError",
    "assert": "assert 1 == 2, 'no'",
    "base exception": "raise BaseException('base')",
    "syntax error": "x = 1\ny = = 2\n",
    "syntax error in an import": "import broken",
    "error in an import": "import failing",
    "tabs and spaces": "if 1:\n        x = 1\n\tx = 2\n",
    "recursion": """
        def f(): f()
        try: f()
        except RecursionError as err: print(err)
    """,
    "own excepthook": """
        import sys, traceback
        def hook(kind, exc, tb):
            print("hook", kind, exc, [f.f_code.co_name for f, _ in traceback.walk_tb(tb)], exc.__traceback__ is tb)
        sys.excepthook = hook
        1 / 0
    """,
    "excepthook that fails": """
        import sys
        def hook(*args): raise ValueError("in the hook")
        sys.excepthook = hook
        1 / 0
    """,
    "excepthook that exits": """
        import sys
        def hook(*args): sys.exit(5)
        sys.excepthook = hook
        1 / 0
    """,
    "atexit after threads": """
        import atexit, sys, threading, time
        def work(): time.sleep(0.05); print("thread", threading.main_thread().is_alive())
        atexit.register(lambda: print("second"))
        atexit.register(lambda: print("first", threading.main_thread().is_alive()))
        threading.Thread(target=work).start()
        print("main")
        sys.exit(6)
    """,
    "atexit that fails": """
        import atexit
        class Last:
            def __call__(self): raise ValueError
            def __repr__(self): return "last"
        atexit.register(Last())
    """,
    "exception in a thread": """
        import threading
        def work(): 1 / 0
        t = threading.Thread(target=work); t.start(); t.join()
    """,
    "destructors at the end": """
        class Loud:
            def __del__(self): print("gone")
        loud = Loud()
    """,
    "a file left open": """
        out = open("left_open.txt", "w"); out.write("x")
    """,
    "fork without exec": """
        import os, sys
        pid = os.fork()
        if pid == 0:
            print("child"); sys.exit(7)
        print("parent", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """,
    "fork that fails": """
        import os
        pid = os.fork()
        if pid == 0:
            raise ValueError("in the child")
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """,
    "os._exit": "import os; print('x', flush=True); os._exit(8)",
    "stdout closed": "import sys; print('x'); sys.stdout.close()",
    "killed by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)",
    "killed by SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "keyboard interrupt": "def f(): raise KeyboardInterrupt\nf()\n",
    "keyboard interrupt, then atexit": """
        import atexit, threading, time
        def work(): time.sleep(0.05); print("thread")
        atexit.register(print, "atexit")
        threading.Thread(target=work).start()
        out = open("left_open.txt", "w"); out.write("unflushed")
        raise KeyboardInterrupt
    """,
    "SIGINT": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "SIGTERM handled": """
        import os, signal, sys, time
        print(signal.getsignal(signal.SIGINT))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
        os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)
    """,
}
if sys.version_info >= (3, 11):
    PROGRAMS["exception group"] = """
        def f():
            try: 1 / 0
            except ZeroDivisionError as err: return err
        raise ExceptionGroup("many", [f(), ValueError("v"), ExceptionGroup("inner", [KeyError("k")])])
    """


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_does_what_it_does_under_python(folder, script, name):
    script(PROGRAMS[name])
    folder.write("neighbour.py", "")
    folder.write("broken.py", "def f(:\n  pass\n")
    folder.write("failing.py", "\n\n1 / 0\n")
    expected = folder.python("program.py", "--on", "7")
    files = {f.name: f.read_bytes() for f in folder.path.glob("*.txt")}

    done = folder.wherry("run", "--on", "mps", "--quiet", "program.py", "--on", "7")

    assert done.stdout == expected.stdout
    assert done.stderr == expected.stderr
    assert done.status == expected.status
    assert files == {f.name: f.read_bytes() for f in folder.path.glob("*.txt")}


PATHS = {
    "dot": ["./program.py"],
    "parent": ["sub/../program.py"],
    "symbolic link": ["sub/link.py"],
    "no .py": ["program"],
    "folder": ["app"],
    "archive": ["app.zip"],
    "compiled": ["program.pyc"],
    "module": ["-m", "program"],
    "module attached": ["-mprogram"],
    "module of a package": ["-m", "pkg.tool", "-m", "--quiet"],
    "package": ["-m", "pkg", "x"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_every_way_to_name_a_program(folder, name):
    """Also that tracebacks end with the program's frames. Those of runpy, which Python shows for -m, are left out."""
    text = """
        import sys
        print(__name__, __file__, __package__, __spec__ and (__spec__.name, __spec__.origin), __cached__)
        print(sys.argv, sys.path[0], type(__loader__), sorted(globals()))
        {}["missing"]
    """
    for file in ("program.py", "program", "app/__main__.py", "pkg/tool.py", "pkg/__main__.py"):
        folder.write(file, text)
    folder.write("pkg/__init__.py", "print('package', __import__('sys').argv)")
    folder.write("sub/x", "")
    (folder.path / "sub" / "link.py").symlink_to("../program.py")
    with zipfile.ZipFile(folder.path / "app.zip", "w") as archive:
        archive.write(folder.path / "program.py", "__main__.py")
    compiled = "import py_compile; py_compile.compile('program.py', 'program.pyc')"
    assert folder.python("-c", compiled).status == 0
    expected = folder.python(*PATHS[name])

    done = folder.wherry("run", "--on", "mps", "--quiet", *PATHS[name])

    assert done.stdout == expected.stdout
    assert done.stderr == re.sub(r'  File "<frozen runpy>".*\n', "", expected.stderr)
    assert done.status == expected.status == 1
    assert "runpy" not in done.stderr


@pytest.mark.slow
def test_a_program_from_standard_input(folder):
    folder.write("in.py", "import sys\nprint(__name__, sys.argv, repr(sys.path[0]), '__file__' in globals())\n1/0\n")
    shell = "sh", "-c", f"exec {sys.executable} $WITH - a b < in.py"
    expected = folder.end(folder.start(*shell, env={"WITH": ""}))

    done = folder.end(folder.start(*shell, env={"WITH": "-m wherry run --on mps --quiet"}))

    assert (done.stdout, done.status) == (expected.stdout, 1)
    assert "<stdin>" in done.stderr
    assert "wherry" not in done.stderr


@pytest.mark.slow
def test_a_broken_pipe_ends_as_under_python(folder, script):
    script("for i in range(100_000): print(i)\n")
    shell = "bash", "-c", f"{sys.executable} $WITH program.py | head -1; exit ${{PIPESTATUS[0]}}"
    expected = folder.end(folder.start(*shell, env={"WITH": ""}))

    done = folder.end(folder.start(*shell, env={"WITH": "-m wherry run --on mps --quiet"}))

    assert done == expected


@pytest.mark.slow
def test_python_in_safe_mode_gets_no_path_entry(folder, script):
    script("import sys; print(sys.path)")
    if sys.version_info < (3, 11):
        pytest.skip("-P is new in Python 3.11")
    expected = folder.python("-P", "program.py")

    done = folder.python("-P", "-m", "wherry", "run", "--on", "mps", "--quiet", "program.py")

    assert done.stdout == expected.stdout


def test_find_reads_the_three_kinds(folder):
    file = str(folder.write("train.py", ""))

    assert find([file, "--on", "x"]) == Script(file, ("--on", "x"))
    assert find(["-m", "pytest", "-q"]) == Module("pytest", ("-q",))
    assert find(["--", "ls", "--", "-l"]) == Command(("ls", "--", "-l"))


def test_a_missing_script_names_the_nearest(folder):
    folder.write("train.py", "")

    with pytest.raises(ScriptMissing) as caught:
        find([str(folder.path / "trian.py")])

    assert caught.value.nearest == str(folder.path / "train.py")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "nothing to run: name a script"),
        (["-m"], "no module is named"),
        (["--"], "no command is named"),
        (["ls"], "Write: -- ls"),
    ],
)
def test_what_cannot_be_started_is_said(words, sentence):
    with pytest.raises(ScriptError, match=sentence):
        find(words)


def test_a_folder_without_main(tmp_path):
    with pytest.raises(ScriptError, match="this folder has no __main__.py to run"):
        find([str(tmp_path)])
