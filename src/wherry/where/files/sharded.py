"""A checkpoint in several files: an index, {"weight_map": {tensor: file}}, or a folder with one.

Source: huggingface_hub 1.x, "Serialization", `split_torch_state_dict_into_shards`; transformers, `load_sharded_checkpoint`.
"""

from __future__ import annotations

import json
from pathlib import Path

from wherry.errors import BadCheckpoint
from wherry.where.files.listed import Listed, Saved
from wherry.where.printable import printable


def read_index(path: str) -> Listed:
    """What is in the files that an index names.

    Raises:
        BadCheckpoint: the index or one of the files is damaged, or they contradict each other.
    """
    from wherry.where.files import look

    try:
        index = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as err:
        raise BadCheckpoint(path, f"it is no JSON ({printable(str(err)[:80])})") from err
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise BadCheckpoint(path, "it has no weight_map that says which tensor is in which file")
    tensors: dict[str, Saved] = {}
    files = list(dict.fromkeys(names.values()))
    folder = Path(path).parent
    for file in files:
        beside = folder / file
        if Path(file).name != file or "\\" in file or file.endswith(".index.json") or beside.is_dir():
            raise BadCheckpoint(path, f"it names {file[:100]!r}, which is no file beside it")
        part = look(str(beside))
        if not isinstance(part.value, dict):
            raise BadCheckpoint(str(beside), "it holds no dictionary of tensors")
        tensors.update({key: value for key, value in part.value.items() if names.get(key) == file})
    missing = [name for name in names if name not in tensors]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadCheckpoint(path, f"{missing[0][:100]!r}{more} should be in {names[missing[0]]!r}, and is not")
    return Listed(path, f"{len(files)} files", tensors)


def read_folder(path: str) -> Listed:
    """What is in a folder: by its index, else its only checkpoint.

    Raises:
        BadCheckpoint: there is none, or it is not clear which is meant.
    """
    from wherry.where.files import look

    try:
        files = sorted(p.name for p in Path(path).iterdir() if p.is_file())
    except OSError as err:
        raise BadCheckpoint(path, f"it is a folder that cannot be read ({err.strerror or err})") from err
    for ending in ("safetensors.index.json", ".index.json", ".safetensors", (".pt", ".pth", ".bin", ".ckpt")):
        found = [name for name in files if name.endswith(ending)]
        if len(found) == 1:
            return look(str(Path(path) / found[0]))
        if found:
            named = printable(", ".join(found[:5])) + (" ..." if len(found) > 5 else "")
            raise BadCheckpoint(path, f"it is a folder with {len(found)} checkpoints", fix=f"Name one of {named}")
    raise BadCheckpoint(path, "it is a folder without a checkpoint")
