"""A command's MODEL: an ONNX file, or a TensorFlow graph, which is imported first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from lstm_lower.arguments import size
from lstm_lower.cli import console
from lstm_lower.errors import InvalidInputError, some
from lstm_lower.records.content_kinds import is_tensorflow

if TYPE_CHECKING:
    import onnx_ir as ir

    from lstm_lower.tensorflow.anatomy import Anatomy

StateFormOption = Annotated[
    Literal["inputs", "defaults"] | None,
    typer.Option(
        help="Whether inputs of state with initial values become required inputs of the result or keep them as "
        "defaults, which onnxruntime-node and -web cannot feed [default: defaults]."
    ),
]
_INPUTS_HELP = "Inputs of a TensorFlow graph, separated by commas [default: those that `inspect` proposes]."


@dataclasses.dataclass(frozen=True)
class GraphOptions:
    """The options of a command that say which part of a TensorFlow graph it is about, as they are written."""

    inputs: Annotated[str | None, typer.Option("--inputs", "--graph-inputs", metavar="NAMES", help=_INPUTS_HELP)] = None
    outputs: Annotated[
        str | None,
        typer.Option(
            "--outputs",
            metavar="NAMES",
            help="Outputs of a TensorFlow graph, separated by commas [default: those that `inspect` proposes].",
        ),
    ] = None
    signature: Annotated[str | None, typer.Option("--signature", metavar="NAME", help="Signature of a SavedModel.")] = (
        None
    )
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", metavar="PATH", help="Values of a TensorFlow graph's variables: a prefix or folder."
        ),
    ] = None

    def refuse(self, path: Path) -> None:
        """Raises an InvalidInputError for options of a TensorFlow graph, of which the file holds none."""
        given = [name for name, value in vars(self).items() if value]
        if given:
            path.stat()  # of a file that is not there nothing else needs to be said
            raise InvalidInputError(f"--{given[0]} requires a TensorFlow graph, got {path}")


@dataclasses.dataclass(frozen=True)
class ImportOptions(GraphOptions):
    """The options of a command that say how a TensorFlow graph is imported."""

    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="inputs|initializers",
            help="What a TensorFlow graph's variables become [default: inputs of a training step, else initializers].",
        ),
    ] = None
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shapes",
            metavar="NAME=SIZES",
            help="Sizes of an input of a TensorFlow graph: numbers, names, or ? (ids:0=20,batch); may be repeated.",
        ),
    ] = None
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="INPUT=OUTPUT",
            help="An output of a TensorFlow graph that is an input's next value; may be repeated.",
        ),
    ] = None

    def with_form_of_state(self) -> tuple[ImportOptions, Literal["inputs", "defaults"] | None]:
        """The options with the pairs of `--state` alone, and what becomes of initial values, which it says, too.

        Raises:
            InvalidInputError: a value is neither, or both forms are asked for.
        """
        form, pairs = _state_form(self.state)
        return dataclasses.replace(self, state=pairs), form


@dataclasses.dataclass(frozen=True)
class LoweringOptions(ImportOptions):
    """Those of `lower`, whose result has its state in one of two forms."""

    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="inputs|defaults|INPUT=OUTPUT",
            help="Whether inputs with initial values become required inputs of the result or keep them as defaults, "
            "which onnxruntime-node and -web cannot feed [default: defaults]. INPUT=OUTPUT: an output of a TensorFlow "
            "graph that is an input's next value; may be repeated.",
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class FedImportOptions(ImportOptions):
    """Those of a command whose `--inputs` are feeds."""

    inputs: Annotated[str | None, typer.Option("--graph-inputs", metavar="NAMES", help=_INPUTS_HELP)] = None


def _state_form(texts: Sequence[str] | None) -> tuple[Literal["inputs", "defaults"] | None, list[str]]:
    """Divides the values of `--state`: what becomes of initial values, and pairs.

    Raises:
        InvalidInputError: a value is neither, or both forms are asked for.
    """
    forms: set[Literal["inputs", "defaults"]] = set()
    pairs = []
    for text in texts or ():
        match text:
            case "inputs" | "defaults":
                forms.add(text)
            case _ if "=" in text:
                pairs.append(text)
            case _:
                raise InvalidInputError(f"--state requires inputs, defaults or INPUT=OUTPUT, got {text!r}")
    if len(forms) > 1:
        raise InvalidInputError("--state requires inputs or defaults, got both")
    return (forms.pop() if forms else None), pairs


def settle_state(model: ir.Model, form: Literal["inputs", "defaults"] | None) -> None:
    """Takes initial values out where that is asked for; where nothing is, says who cannot feed such inputs."""
    from lstm_lower.records import state

    if form == "inputs":
        state.detach_initial_values(model)
    elif form is None and (count := len(state.initial_values(model))):
        console.err().print(
            f"state: {count} inputs with initial values, which onnxruntime-node and -web cannot feed (--state inputs: "
            "required inputs; --state defaults: as they are; lstm-lower export: a folder for every runtime)"
        )


def open_model(path: Path, options: ImportOptions, opset: int | None = None) -> ir.Model:
    """Reads an ONNX model, or imports a file of TensorFlow's and says what was chosen that the options leave open.

    Args:
        path: the file.
        options: how to import it; inputs and outputs that they leave open are those that `inspect` proposes.
        opset: version of ai.onnx that a graph is imported for.

    Raises:
        InvalidInputError: options of TensorFlow graphs are given for an ONNX file, or do not fit the graph.
        FileNotFoundError: there is no such file.
        InvalidModelError, UnsupportedOpError: the model is malformed or cannot be imported.
    """
    from lstm_lower.records.model_files import load

    if not is_tensorflow(path):
        options.refuse(path)
        return load(path)
    path.stat()  # a file that is not there needs no package of an extra
    from lstm_lower.tensorflow import from_tensorflow

    import_arguments(options)  # what is malformed is said before the file is read
    options = _tell_chosen(chosen(path, options), options)
    arguments = import_arguments(options, opset)
    model = load(from_tensorflow(path, checkpoint=options.checkpoint, signature=options.signature, **arguments))
    if options.weights is None:
        _tell_weights(model)
    return model


def opened(path: Path, options: ImportOptions) -> Path | ir.Model:
    """A file of ONNX's as it is, or the model that a TensorFlow graph is imported as; errors as `open_model`'s."""
    plain = options == ImportOptions() and not is_tensorflow(path)
    return path if plain else open_model(path, options)


def import_arguments(options: ImportOptions, opset: int | None = None) -> dict[str, Any]:
    """Arguments of `from_tensorflow` besides the source, its signature and its checkpoint.

    Raises:
        InvalidInputError: an option is malformed.
    """
    return {
        "inputs": names_of(options.inputs),
        "outputs": names_of(options.outputs),
        "opset": opset,
        "weights": _weights(options.weights),
        "shapes": _shapes(options.shapes or ()),
        "state": dict(_pair("state", text, "INPUT=OUTPUT") for text in options.state or ()),
    }


def chosen(path: Path, options: ImportOptions, fed: Sequence[str] = ()) -> ImportOptions:
    """The options with what `inspect` would go on with for those that are not given.

    Args:
        path: the file.
        options: what is given.
        fed: further tensors that are given, at which the graph is cut.

    Raises:
        InvalidModelError, InvalidInputError: the file is broken, or the names are not in it.
        OSError: it cannot be read.
    """
    from lstm_lower.tensorflow.anatomy import anatomy
    from lstm_lower.tensorflow.files.graph_files import read_file
    from lstm_lower.tensorflow.files.saved_model import DEFAULT_SIGNATURE

    inputs = [*(names_of(options.inputs) or ()), *fed] or None
    outputs = names_of(options.outputs)
    contents = anatomy(read_file(path, options.checkpoint), options.signature, inputs, outputs)
    if options.signature is None and len(contents.signatures) > 1 and DEFAULT_SIGNATURE not in contents.signatures:
        return options  # one has to be named: the import names them
    signature, given, asked = choice(contents, inputs, outputs, options.signature)
    return dataclasses.replace(options, signature=signature, inputs=given or options.inputs, outputs=asked)


def choice(
    found: Anatomy, inputs: Sequence[str] | None, outputs: Sequence[str] | None, signature: str | None
) -> tuple[str | None, str | None, str | None]:
    """The signature, inputs and outputs to import, as options spell them; `None` for those that need not be said."""
    from lstm_lower.tensorflow.files.saved_model import DEFAULT_SIGNATURE

    if signature is not None or found.signatures:
        names = list(found.signatures)
        signature = signature or (DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in names else names[0])
        declared = found.signatures.get(signature, {}).get("inputs", {})
        # A placeholder that the results need, such as a rate, and that the signature leaves out.
        undeclared = _of_numbers({name: found.inputs[name] for name in found.undeclared})
        given = [*_of_numbers(declared), *undeclared] if inputs is None and undeclared else None
    else:
        given = list(dict.fromkeys([*(inputs or ()), *_of_numbers(found.inputs)]))
        # Who names outputs has the whole graph.
        outputs = outputs or ([*found.losses, *found.train_ops] if found.train_ops and found.cut is None else None)
    return signature, ",".join(given or ()) or None, ",".join(outputs or ()) or None


def _of_numbers(inputs: Mapping[str, str]) -> list[str]:
    """The inputs, name -> type, that a model can have: a text is none."""
    return [name for name, text in inputs.items() if not text.startswith("string")]


def _tell_chosen(chosen: ImportOptions, given: ImportOptions) -> ImportOptions:
    """Says which part of a graph was taken, where that is a choice."""
    if given.outputs is None and chosen.outputs is not None:
        names = {"inputs": names_of(chosen.inputs) or [], "outputs": names_of(chosen.outputs) or []}
        text = ", ".join(f"--{key} {some(found, 4)}" for key, found in names.items() if found)
        console.err().print(escape(f"taken of the graph: {text} (`lstm-lower inspect` lists what else there is)"))
    return chosen


def _tell_weights(model: ir.Model) -> None:
    """Says what was chosen for the weights, where there was a choice."""
    from lstm_lower.records import state

    values = model.graph.initializers
    inputs = sum(value.name in values for value in model.graph.inputs)
    if not values or (not inputs and state.METADATA_KEY in model.metadata_props):
        return
    if inputs:
        text = f"weights: {inputs} inputs with initial values, to be trained (--weights initializers: constants)"
    else:
        text = f"weights: {len(values)} constants of the model (--weights inputs: inputs with initial values)"
    console.err().print(escape(text))


def _weights(text: str | None) -> Literal["inputs", "initializers"] | None:
    match text:
        case None | "inputs" | "initializers":
            return text
    raise InvalidInputError(f"--weights requires inputs or initializers, got {text!r}")


def _shapes(texts: Sequence[str]) -> dict[str, list[int | str | None]]:
    """Reads `--shapes NAME=SIZES` options; a scalar has no sizes.

    Raises:
        InvalidInputError: one of them is malformed.
    """
    found: dict[str, list[int | str | None]] = {}
    for text in texts:
        name, sizes = _pair("shapes", text, "NAME=SIZES")
        parts = [part.strip() for part in sizes.strip("[]() ").split(",") if part.strip()]
        found[name] = [None if part == "?" else part if (known := size(part)) is None else known for part in parts]
    return found


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInputError(f"--{option} requires {form}, got {text!r}")
    return name, value


def names_of(text: str | None) -> list[str] | None:
    """The names in an option's value."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
