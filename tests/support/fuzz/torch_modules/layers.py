"""Layers of `torch.nn`, with most of their options."""

from __future__ import annotations

from torch import Tensor

from tests.support.fuzz.torch_modules.scope import Refused, Scope, idea

ACTIVATIONS = [
    "ReLU()",
    "LeakyReLU(0.2)",
    "ELU()",
    "SELU()",
    "CELU(0.7)",
    "GELU()",
    "GELU(approximate='tanh')",
    "SiLU()",
    "Mish()",
    "Sigmoid()",
    "Tanh()",
    "Softplus(2.0)",
    "Softsign()",
    "Softshrink(0.3)",
    "Hardshrink(0.2)",
    "Hardtanh()",
    "Hardswish()",
    "Hardsigmoid()",
    "LogSigmoid()",
    "Tanhshrink()",
    "ReLU6()",
    "Threshold(0.1,0.5)",
    "Softmax(-1)",
    "LogSoftmax(-1)",
    "Softmin(-1)",
    "RReLU(0.2,0.2)",
    "Dropout(0.0)",
    "Identity()",
    "PReLU()",
]
ACTIVATIONS = [
    text.replace(",", ", ").replace("approximate", " approximate").replace("( ", "(") for text in ACTIVATIONS
]


def width_of(scope: Scope) -> int:
    return int(scope.choice(2, 3, 4, 6))


@idea(3)
def linear(scope: Scope) -> None:
    x = scope.floats(1)
    bias = scope.choice("", "", ", bias=False")
    held = scope.layer(f"nn.Linear({scope.size(x, -1)}, {width_of(scope)}{bias})")
    if scope.chance(0.12):
        wrap = scope.choice(
            "parametrizations.weight_norm", "parametrizations.spectral_norm", "parametrizations.orthogonal"
        )
        scope.setup(f"{held} = {wrap}({held})")
    elif scope.chance(0.1):
        scope.setup(f"{held}.{scope.choice('weight', 'bias')}.requires_grad_(False)")
    scope.put(f"{held}({x})")
    if scope.chance(0.15) and scope.size(x, -1) == scope.size(scope.pick(), -1):
        scope.put(f"F.linear({scope.floats(1, test=lambda y: y.shape[-1] == scope.size(x, -1))}, {held}.weight)")


@idea(3)
def activation(scope: Scope) -> None:
    x = scope.floats(1)
    text = scope.random.choice(ACTIVATIONS)
    if text == "PReLU()" and scope.values[x].dim() > 1 and scope.chance(0.5):
        text = f"PReLU({scope.size(x, 1)})"
    scope.put(f"{scope.layer('nn.' + text)}({x})")


@idea(2)
def convolution(scope: Scope) -> None:
    x = scope.floats(2, 5)
    dims = scope.values[x].dim() - 2 or 1
    batched = scope.values[x].dim() > 2
    channels = scope.size(x, 1 if batched else 0)
    groups = scope.choice(1, 1, 1, channels)
    made = groups * scope.choice(1, 2) if groups > 1 else width_of(scope)
    kernel = scope.choice(1, 2, 3, 3)
    options = [f"{channels}, {made}, {kernel}", f"groups={groups}"]
    transposed = scope.chance(0.35)
    if scope.chance(0.5):
        options.append(f"padding={scope.choice(1, 1, 2) if transposed or scope.chance(0.8) else repr('same')}")
    if scope.chance(0.4) and "same" not in options[-1]:
        options.append("stride=2")
        if transposed and scope.chance(0.5):
            options.append("output_padding=1")
    if scope.chance(0.25):
        options.append("dilation=2")
    if scope.chance(0.25):
        options.append("bias=False")
    if not transposed and scope.chance(0.25):
        options.append(f"padding_mode='{scope.choice('reflect', 'replicate', 'circular')}'")
    kind = "ConvTranspose" if transposed else "Conv"
    held = scope.layer(f"nn.{kind}{dims}d({', '.join(options)})")
    if scope.chance(0.1):
        scope.setup(f"{held} = parametrizations.weight_norm({held})")
    scope.put(f"{held}({x})")


@idea(3)
def normalization(scope: Scope) -> None:
    x = scope.floats(2, 5)
    value = scope.values[x]
    dims = max(1, value.dim() - 2)
    channels = value.shape[1]
    affine = scope.choice("", "affine=False", "eps=0.1", "momentum=0.3", "momentum=None", "track_running_stats=False")
    match scope.choice("batch", "batch", "instance", "layer", "layer", "group", "rms", "local", "function"):
        case "batch":
            text = f"nn.BatchNorm{dims}d({channels}, {affine})"
        case "instance":
            if value.dim() < 3:
                raise Refused
            more = scope.choice("", "affine=True", "track_running_stats=True", "affine=True, track_running_stats=True")
            text = f"nn.InstanceNorm{dims}d({channels}, {more})"
        case "layer":
            shape = list(value.shape[scope.choice(-1, -1, -2) :])
            text = f"nn.LayerNorm({shape}, {scope.choice('', 'elementwise_affine=False', 'bias=False', 'eps=0.01')})"
        case "group":
            groups = [n for n in range(1, channels + 1) if channels % n == 0]
            text = f"nn.GroupNorm({scope.random.choice(groups)}, {channels}, {scope.choice('', 'affine=False')})"
        case "rms":
            shape = list(value.shape[scope.choice(-1, -1, -2) :])
            text = f"nn.RMSNorm({shape}, {scope.choice('', 'elementwise_affine=False', 'eps=0.01')})"
        case "local":
            text = f"nn.LocalResponseNorm({scope.choice(2, 3)}, alpha=0.1)"
        case _:
            scope.put(f"F.normalize({x}, p={scope.choice(1.0, 2.0, 3.0)}, dim={scope.axis(x)})")
            return
    held = scope.layer(text.replace(", )", ")"))
    if "BatchNorm" in text and scope.chance(0.15):
        scope.setup(f"{held}.eval()")
    scope.put(f"{held}({x})")


@idea(2)
def pooling(scope: Scope) -> None:
    x = scope.floats(2, 5)
    rank = scope.values[x].dim()
    dims = max(1, rank - 2)
    kernel = scope.choice(2, 2, 3)
    more = [text for text in ("stride=1", "stride=2", "padding=1", "ceil_mode=True") if scope.chance(0.3)]
    if sum("stride" in text for text in more) == 2:
        more.remove("stride=1")
    match scope.choice("max", "avg", "adaptive_avg", "adaptive_max", "lp", "indices", "unpool", "fractional"):
        case "max":
            more += ["dilation=2"] if scope.chance(0.2) else []
            scope.put(f"F.max_pool{dims}d({', '.join([x, str(kernel), *more])})")
        case "avg":
            more += ["count_include_pad=False"] if scope.chance(0.3) else []
            scope.put(f"F.avg_pool{dims}d({', '.join([x, str(kernel), *more])})")
        case "adaptive_avg":
            scope.put(f"F.adaptive_avg_pool{dims}d({x}, {scope.choice(1, 1, 2, 3)})")
        case "adaptive_max":
            scope.put(f"F.adaptive_max_pool{dims}d({x}, {scope.choice(1, 1, 2, 3)})")
        case "lp":
            scope.put(f"F.lp_pool{dims}d({x}.abs() + 0.1, {scope.choice(1.0, 2.0, 3.0)}, {kernel})")
        case "fractional":
            if rank != 4:
                raise Refused
            samples = f"torch.linspace(0, 0.9, {x}.shape[0] * {x}.shape[1] * 2).reshape(*{x}.shape[:2], 2)"
            size = scope.choice("output_size=2", "output_size=(1, 2)", "output_ratio=(0.6, 0.4)")
            scope.put(f"F.fractional_max_pool2d({x}, {scope.choice(1, 2)}, {size}, _random_samples={samples})")
        case "indices":
            scope.puts(2, f"F.max_pool{dims}d({x}, {kernel}, return_indices=True)")
        case _:
            pooled, places = scope.puts(2, f"F.max_pool{dims}d({x}, 2, return_indices=True)")
            scope.put(f"F.max_unpool{dims}d({pooled}, {places}, 2)")


@idea(1.5)
def padding(scope: Scope) -> None:
    x = scope.floats(2, 5)
    rank = scope.values[x].dim()
    axes = max(1, rank - 2)
    pads = [scope.choice(0, 1, 1, 2) for _ in range(2 * axes)]
    match scope.choice("constant", "constant", "any", "any"):
        case "constant":
            count = scope.random.randint(1, rank)
            pads = [scope.choice(0, 1, 2, -1) for _ in range(2 * count)]
            scope.put(f"F.pad({x}, {pads}, value={scope.choice(0.0, 0.5, -1.0)})")
        case _:
            scope.put(f"F.pad({x}, {pads}, mode='{scope.choice('reflect', 'replicate', 'circular')}')")


@idea(1)
def resizing(scope: Scope) -> None:
    x = scope.floats(3, 5)
    rank = scope.values[x].dim()
    linear = {3: "linear", 4: "bilinear", 5: "trilinear"}[rank]
    mode = scope.choice("nearest", linear, "bicubic" if rank == 4 else linear, "area", "nearest-exact")
    how = scope.choice("scale_factor=2", "scale_factor=1.5", f"size={scope.choice(2, 3, 7)}")
    corners = f", align_corners={scope.choice('True', 'False')}" if "linear" in mode or mode == "bicubic" else ""
    scope.put(f"F.interpolate({x}, {how}, mode='{mode}'{corners})")


@idea(0.7)
def pixels(scope: Scope) -> None:
    x = scope.floats(3, 5)
    match scope.choice("shuffle", "unshuffle", "unfold", "channels", "fold"):
        case "shuffle":
            scope.put(f"F.pixel_shuffle({x}, 2)")
        case "unshuffle":
            scope.put(f"F.pixel_unshuffle({x}, 2)")
        case "unfold":
            scope.put(f"F.unfold({x}, 2, padding={scope.choice(0, 1)}, stride={scope.choice(1, 2)})")
        case "channels":
            scope.put(f"F.channel_shuffle({x}, {scope.choice(2, 3)})")
        case _:
            folded = scope.put(f"F.unfold({x}, 2)")
            height, width = scope.values[x].shape[-2:]
            scope.put(f"F.fold({folded}, ({height}, {width}), 2)")


def _indices(scope: Scope, low: int = 1) -> str:
    return scope.pick(lambda x: x.dtype.is_floating_point is False and x.dim() >= low and _small(x))


def _small(x: Tensor) -> bool:
    return str(x.dtype) in ("torch.int64", "torch.int32") and int(x.min()) >= 0 and int(x.max()) < 12


@idea(1.5)
def embedding(scope: Scope) -> None:
    ids = _indices(scope)
    width = width_of(scope)
    if scope.chance(0.35) and scope.values[ids].dim() == 2:
        mode = scope.choice("sum", "mean", "max")
        more = scope.choice("", ", padding_idx=1", ", include_last_offset=False")
        held = scope.layer(f"nn.EmbeddingBag(12, {width}, mode='{mode}'{more})")
        weights = ""
        if mode == "sum" and scope.chance(0.4):
            weights = f", per_sample_weights={scope.floats(2, 2, lambda x: x.shape == scope.values[ids].shape)}"
        scope.put(f"{held}({ids}{weights})")
        return
    more = scope.choice("", "", ", padding_idx=2", ", scale_grad_by_freq=True")
    held = scope.layer(f"nn.Embedding(12, {width}{more})")
    made = scope.put(f"{held}({ids})")
    if scope.chance(0.3):
        scope.put(f"{scope.choice('torch.tanh', 'torch.sin')}({made}) @ {held}.weight.T")  # tied


@idea(0.7)
def products(scope: Scope) -> None:
    x = scope.floats(1)
    y = scope.floats(1, test=lambda y: y.shape[:-1] == scope.values[x].shape[:-1])
    held = scope.layer(f"nn.Bilinear({scope.size(x, -1)}, {scope.size(y, -1)}, {width_of(scope)})")
    scope.put(f"{held}({x}, {y})")


@idea(0.7)
def distances(scope: Scope) -> None:
    x = scope.floats(2)
    y = scope.floats(2, test=lambda y: y.shape == scope.values[x].shape and y is not scope.values[x])
    scope.put(
        scope.choice(
            f"F.cosine_similarity({x}, {y}, dim={scope.axis(x)})",
            f"F.pairwise_distance({x}, {y}, p={scope.choice(1.0, 2.0)})",
            f"torch.cdist({x}, {y} + 0.1, p={scope.choice(1.0, 2.0)})",
            f"torch.dist({x}, {y})",
        )
    )
