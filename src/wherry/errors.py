"""Every exception wherry raises on its own account.

    WherryError
    +-- UnknownDevice      (ValueError)         a device nobody here answers to: a typo, or an index that is not there
    +-- BadCount           (ValueError)         a number of devices a backend cannot have
    +-- BadSize            (ValueError)         a text that names no number of bytes
    +-- BadOption          (ValueError)         a word that an argument does not take
    +-- BadRank            (ValueError)         a launcher's variable that holds no rank
    +-- BadVariable        (ValueError)         a variable of torch's own that it cannot read
    +-- UnknownDtype       (ValueError)         a text that names no dtype
    +-- UnknownProfile     (ValueError)         a model of device that a backend's file does not describe
    +-- UnknownOperator    (ValueError)         a text that names no operator of the installed torch
    +-- DeviceAbsent       (RuntimeError)       the device is known, but not usable in this process
    +-- NoSuitableDevice   (RuntimeError)       devices are here, none of them meets what was asked for
    +-- UnmovableLeaf      (RuntimeError)       something in a nested object could not be moved; nothing was
    +-- StrayTensors       (RuntimeError)       tensors of a module that its `to` leaves behind, where that is refused
    +-- CannotRehearse     (RuntimeError)       this backend or torch cannot be rehearsed
    +-- TorchMissing       (ImportError)        torch is not installed, or does not import
    +-- MissingExtra       (ImportError)        a package that an extra brings is not installed, or does not import
    +-- Unconvertible      (TypeError)          a tensor or an array that another library cannot hold as it is
    +-- BadCheckpoint      (ValueError)         a file that is no checkpoint, is damaged, or would run code when loaded
    |   +-- CheckpointMissing (FileNotFoundError) there is no such file
    +-- ScriptError        (RuntimeError)       `wherry run` cannot start the program
        +-- ScriptMissing  (FileNotFoundError)  there is no such script

Each also derives from the builtin one would catch, carries what it knows as attributes and writes its text in `__str__`.
What a *device* raises is not here: a rehearsal raises what the real backend raises. All of them survive pickling, so
that they arrive whole from worker processes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WherryError(Exception):
    """Base of everything wherry raises on its own account."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from `args` by default, which would lose keyword-only arguments.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(cls: type[WherryError], args: tuple[object, ...], state: dict[str, object]) -> WherryError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


def nearest(given: str, known: Iterable[str]) -> str | None:
    """The known name a typo most likely meant, or None when none is close."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(given.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


class UnknownDevice(WherryError, ValueError):
    """No backend here answers to a device.

    Attributes:
        given: The device asked for, as it was written.
        known: Names that would have been understood, or the devices of its type that this process sees.
        title: What those devices are, "CUDA", when the name is right and only the index is not; otherwise None.
        environment: The variable that asked for it or that hides devices, such as 'CUDA_VISIBLE_DEVICES is "0,1"', if any.
        fix: What to do about a wrong index, as a sentence; None for the usual advice.
        nearest: The known name it most resembles, or None.
    """

    def __init__(
        self,
        given: str,
        known: Iterable[str],
        *,
        title: str | None = None,
        environment: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.given = given
        self.known = tuple(known)
        self.title = title
        self.environment = environment
        self.fix = fix
        self.nearest = None if title else nearest(given, self.known)

    def __str__(self) -> str:
        if self.title is None:
            guess = f' Did you mean "{self.nearest}"?' if self.nearest else ""
            who = f" ({self.environment})" if self.environment else ""
            return f'"{self.given}" is no device wherry knows{who}.{guess} Known are {", ".join(self.known)}.'
        index = self.given.partition(":")[2]
        count = len(self.known)
        seen = f"{count} {self.title} {'device' if count == 1 else 'devices'} ({', '.join(self.known)})"
        these = {1: "that one", 2: "one of those two"}.get(count, f"one of those {count}")
        sentences = [f'"{self.given}" asks for index {index}, but this process sees {seen}.']
        if self.environment:
            sentences.append(f"{self.environment}.")
        sentences.append(self.fix or f"Use {these}, or wherry.pick() to choose.")
        return " ".join(sentences)


class BadCount(WherryError, ValueError):
    """A number of devices that a backend cannot have.

    Attributes:
        count: The number asked for.
        backend: The backend it was asked of, "mps".
        most: The largest number that backend can have.
    """

    def __init__(self, count: object, *, backend: str, most: int) -> None:
        self.count = count
        self.backend = backend
        self.most = most

    def __str__(self) -> str:
        if self.most == 1:
            return f"{self.count!r} {self.backend} devices cannot be had: torch knows one {self.backend} device. Use count=1."
        return f"{self.count!r} is no number of {self.backend} devices. Use a whole number from 1 to {self.most}."


class BadSize(WherryError, ValueError):
    """A text that names no number of bytes.

    Attributes:
        given: The text.
        why: What is wrong with it, as the end of a sentence.
    """

    def __init__(self, given: object, why: str) -> None:
        self.given = given
        self.why = why

    def __str__(self) -> str:
        given = f'"{self.given}"' if isinstance(self.given, str) else repr(self.given)
        return (
            f"{given} is no size: {self.why}. "
            'Write a number and a unit, such as "512MiB", "6GiB" (2**30 bytes each) or "8GB" (10**9 bytes each).'
        )


class BadOption(WherryError, ValueError):
    """A word that an argument does not take.

    Attributes:
        argument: The name of the argument.
        given: What was given.
        known: The words that it takes.
        nearest: The one that was most likely meant, or None.
    """

    def __init__(self, argument: str, given: object, known: Iterable[str]) -> None:
        self.argument = argument
        self.given = given
        self.known = tuple(known)
        self.nearest = nearest(str(given), self.known)

    def __str__(self) -> str:
        guess = f' Did you mean "{self.nearest}"?' if self.nearest else ""
        words = ", ".join(f'"{word}"' for word in self.known)
        return f"{self.argument}={self.given!r} means nothing.{guess} It takes {words}."


class BadRank(WherryError, ValueError):
    """A launcher's variable that holds no rank.

    Attributes:
        variable: Its name, "LOCAL_RANK".
        value: What it holds.
    """

    def __init__(self, variable: str, value: str) -> None:
        self.variable = variable
        self.value = value

    def __str__(self) -> str:
        return (
            f'{self.variable} is "{self.value}", which is no rank. torchrun sets it to 0, 1, ...; '
            f"unset it if no launcher started this process."
        )


class BadVariable(WherryError, ValueError):
    """An environment variable of torch's own, which must be a number and is not.

    Attributes:
        variable: Its name, "PYTORCH_ENABLE_MPS_FALLBACK".
        value: What it holds.
        title: Of the backend that reads it, "Apple MPS".
    """

    def __init__(self, variable: str, value: str, title: str) -> None:
        self.variable = variable
        self.value = value
        self.title = title

    def __str__(self) -> str:
        return (
            f'{self.variable} is "{self.value}", which is no number. On {self.title}, torch reads one when it is imported, '
            "and the process ends there. Set it to 1 or 0, or unset it."
        )


class UnknownDtype(WherryError, ValueError):
    """A text that names no dtype.

    Attributes:
        given: The text.
        nearest: The dtype it most resembles, or None.
    """

    def __init__(self, given: str, known: Iterable[str]) -> None:
        self.given = given
        self.nearest = nearest(given, known)

    def __str__(self) -> str:
        guess = f' Did you mean "{self.nearest}"?' if self.nearest else ""
        return f'"{self.given}" is no dtype of torch.{guess}'


class UnknownOperator(WherryError, ValueError):
    """A name that no operator of the installed torch has, or a pattern that none matches.

    Attributes:
        given: The name, as it was written.
        near: Operators that are called nearly so.
    """

    def __init__(self, given: str, near: Iterable[str]) -> None:
        self.given = given
        self.near = tuple(near)

    def __str__(self) -> str:
        if any(wild in self.given for wild in "*?["):
            return f'no operator matches "{self.given}". Operators are written as in torch, "linalg.svd" or "linalg_*".'
        meant = f" Did you mean {', '.join(self.near)}?" if self.near else ""
        return f'no operator is called "{self.given}".{meant} Wildcards find more: "*{self.given.rpartition(".")[2]}*".'


class DeviceAbsent(WherryError, RuntimeError):
    """The device asked for is known, but not usable in this process.

    Attributes:
        device: The device asked for.
        reason: Why it is not usable, as a clause: "this torch is built without CUDA".
        broken: Whether it should have been usable: a driver too old, a library missing.
        asked_by: Who asked for it: "WHERRY_DEVICE", or None for the caller.
    """

    def __init__(self, device: str, reason: str, *, broken: bool = False, asked_by: str | None = None) -> None:
        self.device = device
        self.reason = reason
        self.broken = broken
        self.asked_by = asked_by

    def __str__(self) -> str:
        who = f' ({self.asked_by} is "{self.device}")' if self.asked_by else ""
        state = "is broken" if self.broken else "is not here"
        return (
            f'"{self.device}" {state}{who}: {self.reason}. '
            f'To run without one, use wherry.rehearse("{self.device}") or `wherry run --on {self.device}`.'
        )


class NoSuitableDevice(WherryError, RuntimeError):
    """Devices are here, but none meets what was asked for.

    Attributes:
        wanted: What was asked for: "float64", "6 GiB free".
        passed_over: Pairs of a device and the reason it does not do.
    """

    def __init__(self, wanted: Iterable[str], passed_over: Iterable[tuple[str, str]]) -> None:
        self.wanted = tuple(wanted)
        self.passed_over = tuple(passed_over)

    def __str__(self) -> str:
        reasons = "; ".join(f"{device}: {reason}" for device, reason in self.passed_over)
        return f"No device here has {' and '.join(self.wanted)}. Passed over: {reasons}."


class UnknownProfile(WherryError, ValueError):
    """No model of device of that name is known.

    Attributes:
        given: The name.
        device: Whose models were looked through.
        known: Their names.
        nearest: The one it most resembles, or None.
    """

    def __init__(self, given: str, device: str, known: Iterable[str]) -> None:
        self.given = given
        self.device = device
        self.known = tuple(known)
        self.nearest = nearest(given, self.known)

    def __str__(self) -> str:
        if not self.known:
            return f'"{self.given}" is no profile of {self.device}, which has none. Leave the profile out.'
        guess = f' Did you mean "{self.nearest}"?' if self.nearest else ""
        return f'"{self.given}" is no profile of {self.device}.{guess} Known are {", ".join(self.known)}.'


class UnmovableLeaf(WherryError, RuntimeError):
    """Something in a nested object could not be moved, and so nothing was.

    Attributes:
        path: How one writes the way to it: "batch['labels'][2]".
        device: Where it was to go.
        reason: Why it cannot, as a clause.
        fix: What to do about it, as a sentence; None where the cause says it all.
    """

    def __init__(self, path: str, device: str, *, reason: str, fix: str | None = None) -> None:
        self.path = path
        self.device = device
        self.reason = reason
        self.fix = fix

    def __str__(self) -> str:
        text = f"{self.path} cannot move to {self.device}: {self.reason.rstrip('.!:')}. Nothing has moved."
        return f"{text} {self.fix}" if self.fix else text


class StrayTensors(WherryError, RuntimeError):
    """Tensors that hang in a module but are neither its parameters nor its buffers, so that its `to` leaves them behind.

    Attributes:
        strays: For each the path ("model.mask"), the device it is on, and the lasting fix, as a sentence.
        device: Where the module was to go.
        movable: Whether move(..., strays="move") would move them.
    """

    MOST = 3  # that are told with their fix; a person mends one and looks again

    def __init__(self, strays: Iterable[tuple[str, str, str]], *, device: str, movable: bool = True) -> None:
        self.strays = tuple(strays)
        self.device = device
        self.movable = movable

    def __str__(self) -> str:
        count = len(self.strays)
        what = (
            "1 tensor that is no parameter or buffer stays"
            if count == 1
            else f"{count} tensors that are no parameters or buffers stay"
        )
        lines = [f"{what} behind when the module moves to {self.device}:"]
        for path, device, fix in self.strays[: self.MOST]:
            lines += [f"  {path} (on {device})", f"    {fix}"]
        if count > self.MOST:
            rest = ", ".join(path for path, _, _ in self.strays[self.MOST : self.MOST + 10])
            lines.append(f"  and {rest}{', ...' if count > self.MOST + 10 else ''}")
        if self.movable:
            lines.append('To move them this time, use move(..., strays="move").')
        return "\n".join(lines)


class CannotRehearse(WherryError, RuntimeError):
    """This cannot be rehearsed.

    Attributes:
        device: What was to be rehearsed.
        reason: Why it cannot be, as a clause.
    """

    def __init__(self, device: str, reason: str) -> None:
        self.device = device
        self.reason = reason

    def __str__(self) -> str:
        return f'"{self.device}" cannot be rehearsed: {self.reason}.'


class TorchMissing(WherryError, ImportError):
    """torch is not installed, or does not import.

    Attributes:
        what: What needs it, as the subject of a sentence: "wherry.pick()".
        reason: Why the import failed when torch is installed, or None when it is not.
    """

    def __init__(self, what: str, *, reason: str | None = None) -> None:
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        if self.reason:
            return f"{self.what} needs torch, which is installed but does not import: {self.reason}"
        return f"{self.what} needs torch, which is not installed here. Install it with: pip install 'wherry[torch]'"


class MissingExtra(WherryError, ImportError):
    """A package that one of wherry's extras brings is not installed, or does not import.

    Attributes:
        package: What is missing, as it is written in a sentence: "MLX".
        extra: The extra of wherry that brings it: "mlx".
        reason: Why the import failed when the package is installed, or None when it is not.
        note: What else is to be known on this machine, as a sentence, such as that nobody builds the package for it; or None.
    """

    def __init__(self, package: str, extra: str, *, reason: str | None = None, note: str | None = None) -> None:
        self.package = package
        self.extra = extra
        self.reason = reason
        self.note = note

    def __str__(self) -> str:
        what = "is not installed" if self.reason is None else f"is installed but does not import: {self.reason}"
        note = f" {self.note}" if self.note else ""
        return f'{self.package} {what}. Install it with: pip install "wherry[{self.extra}]"{note}'


class Unconvertible(WherryError, TypeError):
    """A tensor or an array that another library cannot hold as it is.

    Attributes:
        what: What was to be converted, as the subject of a sentence: "A sparse_coo tensor".
        to: What it was to become: "a NumPy array".
        why: Why it cannot, as a clause.
        fix: What to do instead, as a sentence.
    """

    def __init__(self, what: str, to: str, *, why: str, fix: str) -> None:
        self.what = what
        self.to = to
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what} cannot become {self.to}: {self.why}. {self.fix}"


class BadCheckpoint(WherryError, ValueError):
    """A file that is no checkpoint, is damaged, or would run code when loaded.

    Attributes:
        path: The file.
        reason: What is wrong, as a clause: "the header ends at byte 900, and the file at 800".
        fix: What to do about it, as a sentence, or None.
    """

    def __init__(self, path: str, reason: str, *, fix: str | None = None) -> None:
        self.path = path
        self.reason = reason
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}." + (f" {self.fix}" if self.fix else "")


class CheckpointMissing(BadCheckpoint, FileNotFoundError):
    """There is no such file.

    Attributes:
        nearest: A file beside it that it resembles, or None.
    """

    # As for ScriptMissing: OSError's is the one that pickling must find.
    __new__ = FileNotFoundError.__new__

    def __init__(self, path: str, *, near: Iterable[str] = ()) -> None:
        super().__init__(path, "there is no such file")
        self.nearest = nearest(path, near)

    def __str__(self) -> str:
        guess = f" Did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.path}: {self.reason}.{guess}"


class ScriptError(WherryError, RuntimeError):
    """`wherry run` cannot start the program.

    Attributes:
        program: The script, module or command, as it was written.
        reason: Why it cannot be started, as a clause.
        line: The line of the script that is to blame, or None.
    """

    def __init__(self, program: str, reason: str, *, line: int | None = None) -> None:
        self.program = program
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        where = self.program if self.line is None else f"{self.program}, line {self.line}"
        return f"{where}: {self.reason}."


class ScriptMissing(ScriptError, FileNotFoundError):
    """There is no such script.

    Attributes:
        nearest: A file beside it that it resembles, or None.
    """

    # OSError has a shape of its own, so its __new__ is the one to use, which pickling would not find behind RuntimeError's.
    __new__ = FileNotFoundError.__new__

    def __init__(self, program: str, *, near: Iterable[str] = ()) -> None:
        super().__init__(program, "there is no such file")
        self.nearest = nearest(program, near)

    def __str__(self) -> str:
        guess = f" Did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.program}: {self.reason}.{guess}"
