"""Cases of the ops that rearrange sparse arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.support.gradient_cases import Array
from tests.support.ordinary.case import Case, draw, grid, text

SHAPES = [(4,), (5, 3), (2, 3, 4)]


def _places(shape: tuple[int, ...], *, ordered: bool = True) -> Array:
    """About a third of all places, with rows that have none."""
    rng = np.random.default_rng(len(shape))
    taken = (rng.random(shape) < 0.4) & (rng.random(shape[:1]) < 0.7).reshape(-1, *[1] * (len(shape) - 1))
    found = np.argwhere(taken).astype(np.int64)
    return found if ordered else rng.permutation(found)


def _added_back(given: dict[str, Array], sums: Array) -> dict[str, Array]:
    """The gradients of both arrays' elements: that of the sum at their place, zero where the sum has none."""
    dy = given["backprop_val_grad"]
    at = {tuple(place): value for place, value in zip(sums.tolist(), dy, strict=False)}

    def of(places: Array) -> Array:
        return np.array([at.get(tuple(place), 0) for place in places.tolist()], dy.dtype)

    return {f"{side}_val_grad": of(given[f"{side}_indices"]) for side in "ab"}


def _softmax_of_a_row(values: Array) -> dict[str, Array]:
    powers = np.exp(values.astype(np.float64))
    return {"output": powers / powers.sum()}


def cases() -> Iterator[Case]:
    for shape, dtype in grid(SHAPES, ("int32", "int64", "float64")):
        sizes, places, jumbled = np.array(shape, np.int64), _places(shape), _places(shape, ordered=False)
        values, what = draw((len(places),), dtype, "sparse"), text(shape, dtype)
        for name, where in (("ordered", places), ("jumbled", jumbled), ("none", places[:0])):
            given = {"indices": where, "values": values[: len(where)], "dense_shape": sizes}
            given |= {"default_value": np.array(7, dtype)}
            yield Case("SparseFillEmptyRows", text(what, name), {**given}, steering=("dense_shape",))
            given = {"input_indices": where, "input_values": values[: len(where)], "input_shape": sizes}
            yield Case("SparseReorder", text(what, name), {**given}, steering=("input_shape",))
        for start, size in (([1] * len(shape), [2] * len(shape)), ([0] * len(shape), [9] * len(shape))):
            box = {"start": np.array(start, np.int64), "size": np.array(size, np.int64)}
            whole = {"indices": places, "values": values, "shape": sizes, **box}
            yield Case("SparseSlice", text(what, start), whole, steering=("shape",))
            kept = ((places >= start) & (places < np.add(start, size))).all(1)
            back = {"backprop_val_grad": values[kept], "input_indices": places, "input_start": box["start"]}
            yield Case("SparseSliceGrad", text(what, start), {**back, "output_indices": places[kept] - start})
        other = np.array([place for number, place in enumerate(np.ndindex(*shape)) if number % 3 < 2], np.int64)
        for name, mine, theirs in (
            ("some", places, other),
            ("none", places[:0], other),
            ("nothing", places[:0], other[:0]),
        ):
            pair = {"a_indices": mine, "a_values": values[: len(mine)], "a_shape": sizes}
            pair |= {"b_indices": theirs, "b_values": draw((len(theirs),), dtype, "other"), "b_shape": sizes}
            for least in (0, 3):
                ends = {**pair, "thresh": np.array(least, dtype)}
                yield Case("SparseAdd", text(what, name, least), ends, steering=("a_shape", "b_shape"))
            back = {"backprop_val_grad": pair["b_values"], "a_indices": mine, "b_indices": other[:3]}
            yield Case(
                "SparseAddGrad", text(what, name), {**back, "sum_indices": theirs}, expected=_added_back(back, theirs)
            )
            union = np.unique(np.concatenate([mine, theirs]), axis=0)
            back = {"backprop_val_grad": draw((len(union),), dtype, "sum"), "a_indices": mine, "b_indices": theirs}
            yield Case("SparseAddGrad", text(what, name, "all"), {**back, "sum_indices": union})
        for axis in (0, -1):
            lists = {"indices": [places, places[:2], places[:0]], "values": [values, values[:2] * 2, values[:0]]}
            beside = {**lists, "shapes": [sizes] * 3}
            yield Case("SparseConcat", text(what, axis), beside, {"concat_dim": axis}, steering=("shapes",))
        went = np.array([0, 3, 4], np.int64)
        yield Case("SparseFillEmptyRowsGrad", what, {"reverse_index_map": went, "grad_values": draw((6,), dtype)})
        for axes in ([], [0], [-1], [0, -1]):
            if len(axes) > len(shape):
                continue
            for kept in (False, True):
                operands = {**given, "input_indices": places, "input_values": values}
                operands |= {"reduction_axes": np.array(axes, np.int32)}
                known = ("reduction_axes",), ("input_shape",)
                for op in ("SparseReduceSum", "SparseReduceMax"):
                    yield Case(op, text(what, axes, kept), {**operands}, {"keep_dims": kept}, *known)
        operands = {"sp_indices": places, "sp_values": values, "sp_shape": sizes}
        if dtype.startswith("float"):
            yield Case(
                "SparseSoftmax",
                what,
                {**operands},
                steering=("sp_shape",),
                expected=_softmax_of_a_row(values) if len(shape) == 1 else None,
            )
        for op in ("Add", "Mul", "Div"):
            for dense in {shape, shape[-1:], (1, *shape[1:])}:
                other = draw(dense, dtype, op)
                other = np.where(other == 0, np.ones_like(other), np.abs(other))
                positive = {**operands, "sp_values": np.abs(values), "dense": other}
                yield Case(f"SparseDenseCwise{op}", text(what, dense), {**positive}, steering=("sp_shape",))
    lowest = np.array([-np.inf, -2, np.inf, -1], np.float32)
    for name, count in (("infinite", 4), ("none", 0)):
        operands = {"input_indices": np.array([[0, 1], [2, 0], [3, 1], [3, 2]], np.int64)[:count]}
        operands |= {"input_values": lowest[:count], "input_shape": np.array([5, 3], np.int64)}
        operands |= {"reduction_axes": np.array([1], np.int32)}
        yield Case("SparseReduceMax", name, operands, {}, ("reduction_axes",), ("input_shape",))
    for old, new in (((5, 3), [15]), ((2, 3, 4), [-1, 6]), ((2, 3, 4), [4, -1, 3]), ((4,), [2, 1, 2])):
        operands = {"input_indices": _places(old), "input_shape": np.array(old, np.int64)}
        yield Case(
            "SparseReshape",
            text(old, new),
            {**operands, "new_shape": np.array(new, np.int64)},
            steering=("input_shape", "new_shape"),
        )
