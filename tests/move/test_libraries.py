"""What other libraries put in a batch: BatchEncoding, ModelOutput, TensorDict, PyG's Data, attrs classes, tv_tensors.

attrs comes with the extra `dev`. The others are large or change what is installed, so each is tested where it is:
transformers, tensordict, torch_geometric; torchvision where it was built for the installed torch.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from wherry import move

# Of libraries that say, on their import, what they miss or will change.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def library(name: str) -> ModuleType:
    return pytest.importorskip(name, reason=f"tested with {name} where it is installed")


def places(*tensors: Tensor) -> set[str]:
    return {str(tensor.device) for tensor in tensors}


# attrs


def test_an_attrs_class_keeps_what_it_holds(cuda: str) -> None:
    attrs = library("attrs")

    @attrs.define
    class Batch:
        x: Any
        _hidden: Any = None
        late: Any = attrs.field(init=False)

    batch = Batch(torch.ones(2), hidden=[torch.ones(3)])
    batch.late = torch.ones(4)

    moved = move({"batch": batch}, cuda)["batch"]

    assert type(moved) is Batch
    assert places(moved.x, moved._hidden[0], moved.late) == {cuda}
    assert places(batch.x, batch._hidden[0], batch.late) == {"cpu"}


def test_a_frozen_attrs_class_keeps_what_it_holds(cuda: str) -> None:
    attrs = library("attrs")

    @attrs.frozen
    class Batch:
        x: Any

    moved = move(Batch(torch.ones(2)), cuda)

    assert type(moved) is Batch
    assert places(moved.x) == {cuda}


def test_an_attrs_class_is_not_made_a_second_time(cuda: str) -> None:
    """Its converters, validators and `__attrs_post_init__` had their turn when it was made."""
    attrs = library("attrs")
    made: list[str] = []

    @attrs.define
    class Batch:
        x: Any = attrs.field(converter=lambda x: x + 1, validator=lambda *_: made.append("validated"))

        def __attrs_post_init__(self) -> None:
            made.append("made")

    batch = Batch(torch.zeros(2))
    moved = move(batch, cuda)

    assert made == ["validated", "made"]
    assert moved.x.tolist() == [1.0, 1.0]


def test_an_attrs_class_with_a_dictionary_keeps_an_attribute_more(cuda: str) -> None:
    attrs = library("attrs")

    @attrs.define(slots=False)
    class Batch:
        x: Any

    batch = Batch(torch.ones(2))
    batch.more = torch.ones(3)

    assert places(move(batch, cuda).more) == {cuda}


# transformers


@pytest.mark.slow
def test_a_batch_encoding_moves_with_what_is_nested_in_it(cuda: str) -> None:
    transformers = library("transformers")
    ids, labels = torch.ones(2, dtype=torch.int64), [torch.ones(3), {"deep": torch.ones(4)}]
    encoding = transformers.BatchEncoding({"input_ids": ids, "labels": labels, "text": ["a"]}, n_sequences=2)

    moved = move(encoding, cuda)

    assert type(moved) is transformers.BatchEncoding
    assert places(moved["input_ids"], moved.labels[0], moved["labels"][1]["deep"]) == {cuda}
    assert moved["text"] == ["a"]
    assert moved.n_sequences == 2


@pytest.mark.slow
def test_a_batch_encoding_that_is_moved_is_not_changed(cuda: str, untouched: Any) -> None:
    transformers = library("transformers")
    encoding = transformers.BatchEncoding({"input_ids": torch.ones(2, dtype=torch.int64)})
    is_untouched = untouched(encoding)

    move([encoding], cuda)

    assert is_untouched()
    assert places(encoding["input_ids"]) == {"cpu"}


@pytest.mark.slow
def test_a_batch_encoding_that_is_there_is_the_same_object() -> None:
    transformers = library("transformers")
    encoding = transformers.BatchEncoding({"input_ids": torch.ones(2)})

    assert move(encoding, "cpu") is encoding


@pytest.mark.slow
def test_a_model_output_has_one_tensor_as_item_and_attribute(cuda: str) -> None:
    transformers = library("transformers")
    output = transformers.modeling_outputs.BaseModelOutput(
        last_hidden_state=torch.ones(2), hidden_states=(torch.ones(3),)
    )

    moved = move(output, cuda)

    assert type(moved) is type(output)
    assert moved.last_hidden_state is moved["last_hidden_state"] is moved[0]
    assert moved.hidden_states is moved["hidden_states"]
    assert places(moved[0], moved.hidden_states[0]) == {cuda}


@pytest.mark.slow
def test_a_cache_of_keys_and_values_moves(cuda: str) -> None:
    transformers = library("transformers")
    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4), 0)

    moved = move({"past_key_values": cache}, cuda)["past_key_values"]

    assert type(moved) is type(cache)
    assert moved.get_seq_length() == 2
    assert places(moved.layers[0].keys, moved.layers[0].values) == {cuda}
    assert places(cache.layers[0].keys) == {"cpu"}


# tensordict


@pytest.mark.slow
def test_a_tensordict_moves_with_its_batch_size_and_its_nested_ones(cuda: str) -> None:
    tensordict = library("tensordict")
    inner = tensordict.TensorDict({"z": torch.ones(3, 2)}, batch_size=[3])
    td = tensordict.TensorDict({"x": torch.ones(3), "inner": inner, "text": "a"}, batch_size=[3])

    moved = move({"td": td, "n": 1}, cuda)["td"]

    assert type(moved) is type(td)
    assert moved.batch_size == td.batch_size
    assert places(moved["x"], moved["inner", "z"]) == {cuda}
    assert moved["text"] == "a"
    assert places(td["x"], td["inner", "z"]) == {"cpu"}


@pytest.mark.slow
def test_a_tensorclass_moves(cuda: str) -> None:
    tensordict = library("tensordict")

    @tensordict.tensorclass
    class Data:
        x: Tensor
        note: str

    data = Data(x=torch.ones(3), note="a", batch_size=[3])

    moved = move(data, cuda)

    assert type(moved) is Data
    assert moved.note == "a"
    assert places(moved.x) == {cuda}
    assert places(data.x) == {"cpu"}


# PyTorch Geometric


@pytest.mark.slow
def test_a_graph_moves_with_every_attribute(cuda: str) -> None:
    data = library("torch_geometric.data")
    graph = data.Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.ones(3), name="g")
    graph.extra = [torch.ones(4)]

    moved = move([graph], cuda)[0]

    assert type(moved) is data.Data
    assert places(moved.x, moved.edge_index, moved.y, moved.extra[0]) == {cuda}
    assert (moved.name, moved.num_nodes, moved.num_edges) == ("g", 3, 2)
    assert places(graph.x, graph.edge_index, graph.extra[0]) == {"cpu"}


@pytest.mark.slow
def test_a_graph_of_several_kinds_moves(cuda: str) -> None:
    data = library("torch_geometric.data")
    graph = data.HeteroData()
    graph["user"].x = torch.ones(2, 2)
    graph["user", "likes", "item"].edge_index = torch.tensor([[0], [1]])

    moved = move(graph, cuda)

    assert places(moved["user"].x, moved["user", "likes", "item"].edge_index) == {cuda}
    assert moved.edge_types == graph.edge_types
    assert places(graph["user"].x) == {"cpu"}


@pytest.mark.slow
def test_a_batch_of_graphs_can_be_taken_apart_where_it_arrived(cuda: str) -> None:
    data = library("torch_geometric.data")
    graphs = [data.Data(x=torch.full((size, 1), float(size))) for size in (2, 3)]

    moved = move(data.Batch.from_data_list(graphs), cuda)

    assert places(moved.x, moved.batch, moved.ptr) == {cuda}
    assert [graph.x.tolist() for graph in moved.to_data_list()] == [graph.x.tolist() for graph in graphs]


# torchvision


@pytest.mark.slow
def test_boxes_keep_their_format(cuda: str) -> None:
    try:
        from torchvision import tv_tensors
    except (ImportError, RuntimeError) as err:  # one that was built for another torch registers its operators in vain
        pytest.skip(f"tested with a torchvision of this torch: {err}")
    boxes = tv_tensors.BoundingBoxes(torch.ones(1, 4), format="XYXY", canvas_size=(8, 8))
    image = tv_tensors.Image(torch.ones(3, 8, 8))

    moved = move({"image": image, "target": {"boxes": boxes}}, cuda)

    assert type(moved["image"]) is tv_tensors.Image
    assert type(moved["target"]["boxes"]) is tv_tensors.BoundingBoxes
    assert moved["target"]["boxes"].format == boxes.format
    assert moved["target"]["boxes"].canvas_size == (8, 8)
    assert places(moved["image"], moved["target"]["boxes"]) == {cuda}
