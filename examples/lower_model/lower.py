"""Lowers an ONNX model with recurrent training ops, proves the result, and draws what is left of the gradient's loop.

Usage: python examples/lower_model/lower.py [--out DIR]
"""

from __future__ import annotations

import argparse
import collections
from pathlib import Path

import networkx as nx
import numpy as np
import onnx
from matplotlib.patches import Patch

import lstm_lower as ll
from lstm_lower import pictures

HERE = Path(__file__).parent
MODEL = HERE.parent / "graphs" / "char_lstm_train.onnx"


def ops(graph: onnx.GraphProto) -> collections.Counter[str]:
    """How often each operator occurs, in loop bodies too."""
    count: collections.Counter[str] = collections.Counter()
    for node in graph.node:
        count[node.op_type] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                count += ops(attribute.g)
    return count


def backward_loop(graph: onnx.GraphProto) -> tuple[onnx.GraphProto, int]:
    """The body of the Scan that walks backwards, and how many states it carries."""
    for node in graph.node:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "Scan" and any(attributes.get("scan_input_directions", [])):
            return attributes["body"], len(node.input) - attributes["num_scan_inputs"]
    raise SystemExit("there is no loop that walks backwards")


def names(body: onnx.GraphProto, states: int) -> dict[str, str]:
    """What a textbook calls the values of the body, which is known by who reads them.

    Args:
        body: of the Scan of a `BlockLSTMGrad`, which packs gates i, c, f, o.
        states: how many of its inputs are carried from step to step.
    """
    made_by = {name: node for node in body.node for name in node.output}
    packed = next(node for node in body.node if node.op_type == "Concat")
    found = dict(zip(packed.input, ("di", "dc̃", "df", "do"), strict=True))
    found[packed.output[0]] = "di dc̃ df do"
    for before, after in zip(body.input[:states], body.output[:states], strict=True):
        # The product with the weights makes the gradient of h; the other state is that of the cell.
        what = "dh" if made_by[after.name].op_type == "MatMul" else "dc"
        found |= {before.name: f"{what} from step t+1", after.name: f"{what} at step t-1"}
        total = next(node for node in body.node if node.op_type == "Add" and before.name in node.input)
        found[total.output[0]] = f"{what} at step t"
    return found


def drawn(body: onnx.GraphProto, states: int) -> nx.DiGraph:
    """The boxes, each with `text` and `colour`, and what leads from which to which.

    A product with a factor that was made before the loop says so in its text; of these inputs there is no box.
    """
    called = names(body, states)
    graph, made_by, factors = nx.DiGraph(), {}, set()
    for index, value in enumerate(body.input):
        readers = [node for node in body.node if value.name in node.input]
        if index >= states and all(node.op_type == "Mul" for node in readers):
            factors.add(value.name)
            continue
        made_by[value.name] = value.name
        graph.add_node(value.name, text=called.get(value.name, "gradient of h[t]"), colour=pictures.BOX)
    for node in body.node:
        (output,) = node.output
        text = f"{node.op_type} by a factor" if factors & set(node.input) else node.op_type
        colour = pictures.BOX_ORANGE if node.op_type == "MatMul" else pictures.BOX_BLUE
        graph.add_node(node.name, text="\n".join(filter(None, (text, called.get(output)))), colour=colour)
        graph.add_edges_from((made_by[name], node.name) for name in node.input if name in made_by)
        made_by[output] = node.name
    for value in body.output[states:]:
        graph.nodes[made_by[value.name]]["colour"] = pictures.BOX_GREEN
    for value in body.output[:states]:
        graph.add_node(f"after {value.name}", text="to step t-1", colour=pictures.BOX)
        graph.add_edge(made_by[value.name], f"after {value.name}")
    return graph


def layout(graph: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Places boxes and bends in columns, each next to those that it is connected with."""
    column = {name: index for index, found in enumerate(nx.topological_generations(graph)) for name in found}
    for name in graph:
        if graph.in_degree(name) == 0:
            column[name] = min(column[reader] for reader in graph.successors(name)) - 1
    for start, end in list(graph.edges):
        # An arrow over several columns bends in each between, so that it passes no box.
        bends = [f"{start} {end} {index}" for index in range(column[start] + 1, column[end])]
        column |= {bend: column[start] + 1 + index for index, bend in enumerate(bends)}
        graph.remove_edge(start, end)
        nx.add_path(graph, [start, *bends, end])
    random = np.random.default_rng(0)
    heights = [placed(graph, column, {name: float(random.normal()) for name in graph}) for _ in range(20)]
    height = min(heights, key=lambda found: crossings(graph, column, found))
    return {name: (column[name], height[name]) for name in graph}


def crossings(graph: nx.DiGraph, column: dict[str, int], height: dict[str, float]) -> int:
    """How many pairs of arrows between the same two columns cross."""
    arrows = [(column[start], height[start], height[end]) for start, end in graph.edges]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for index, one in enumerate(arrows)
        for other in arrows[:index]
    )


def placed(graph: nx.DiGraph, column: dict[str, int], height: dict[str, float]) -> dict[str, float]:
    """Heights within the columns, each near the mean of its neighbours', beginning with those given."""
    for _ in range(12):
        for index in range(max(column.values()) + 1):
            found = [name for name in graph if column[name] == index]
            wanted = {
                name: float(np.mean([height[other] for other in nx.all_neighbors(graph, name)])) for name in found
            }
            found.sort(key=wanted.__getitem__)
            taken: list[float] = []
            for name in found:
                taken.append(max(wanted[name], taken[-1] + 1) if taken else wanted[name])
            shift = float(np.mean(taken) - np.mean(list(wanted.values())))
            height |= {name: place - shift for name, place in zip(found, taken, strict=True)}
    return height


def draw(graph: nx.DiGraph, axes: pictures.Axes) -> None:
    """Draws boxes, and arrows that begin and end at their edges."""
    places = layout(graph)
    columns, heights = zip(*places.values(), strict=True)
    axes.set_xlim(min(columns) - 0.6, max(columns) + 0.6)
    axes.set_ylim(min(heights) - 0.6, max(heights) + 0.6)
    axes.set_axis_off()
    boxes = {}
    for name, place in places.items():
        if "text" not in graph.nodes[name]:
            continue
        box = {"boxstyle": "round,pad=0.4", "facecolor": graph.nodes[name]["colour"], "edgecolor": pictures.GREY}
        text = axes.text(*place, graph.nodes[name]["text"], ha="center", va="center", fontsize=8, bbox=box)
        boxes[name] = text
    axes.figure.draw_without_rendering()  # boxes have sizes from here on
    for start, end in graph.edges:
        patches = {"patchA": boxes[start].get_bbox_patch()} if start in boxes else {}
        patches |= {"patchB": boxes[end].get_bbox_patch()} if end in boxes else {}
        head = "-|>,head_width=0.18" if end in boxes else "-"
        style = {"arrowstyle": head, "color": pictures.GREY, "shrinkA": 0, "shrinkB": 0, "linewidth": 0.9}
        axes.annotate("", places[end], places[start], zorder=0, arrowprops={**style, **patches})
    key = {
        pictures.BOX: "carried or read",
        pictures.BOX_BLUE: "computed",
        pictures.BOX_GREEN: "computed, and stacked for later",
        pictures.BOX_ORANGE: "product with the weights",
    }
    patches = [Patch(facecolor=colour, edgecolor=pictures.GREY, label=text) for colour, text in key.items()]
    axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize=8)


def main() -> None:
    """Lowers, checks, runs, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    model = onnx.load(MODEL)
    print("before:", *(f"{count} {op}" for op, count in sorted(ops(model.graph).items()) if "LSTM" in op))
    lowered = ll.lower(model)
    onnx.checker.check_model(lowered, full_check=True)
    assert {entry.domain for entry in lowered.opset_import} == {""}
    body, states = backward_loop(lowered.graph)
    print(f"after: {sum(ops(lowered.graph).values())} nodes of ai.onnx, {len(body.node)} in the gradient's loop")

    with np.load(MODEL.with_suffix(".npz")) as recorded:
        arrays = dict(recorded)
    results = ll.Session(lowered).run({name[3:]: array for name, array in arrays.items() if name.startswith("in:")})
    worst = max(
        float(np.abs(value - arrays[f"out:{name}"]).max() / np.abs(arrays[f"out:{name}"]).max())
        for name, value in results.items()
    )
    print(f"{len(results)} outputs, largest difference from TensorFlow's: {worst:.1e}")
    assert worst < 1e-5

    out.mkdir(parents=True, exist_ok=True)
    with pictures.picture(out / "loop.svg", height=3.6) as figure:
        draw(drawn(body, states), figure.subplots())


if __name__ == "__main__":
    main()
