"""What is done with one item of a campaign: generate, run, compare, reduce."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import random
import re
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort

import lstm_lower as ll
from lstm_lower.passes.targets.table import TARGETS
from lstm_lower.records.model_files import load
from lstm_lower.runtime.feeds import random_feeds
from tests.support.fuzz import comparison, entrances, node_tests
from tests.support.fuzz import damage as damaging
from tests.support.fuzz import files as other_files
from tests.support.fuzz import programs as generator
from tests.support.fuzz import training as steps
from tests.support.fuzz.comparison import SCHEDULES, Case, Failure
from tests.support.fuzz.entrances import Entrance
from tests.support.fuzz.reducing import reduced
from tests.support.fuzz.runs import run
from tests.support.fuzz.scope import Refused
from tests.support.fuzz.worker import Stage, peak
from tests.support.loop_passes import keeping_passes, loop_passes
from tests.support.node_gradients import Outcome, outcome_of


def programs(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """The program of a seed, in some ways through the compiler."""
    stage("original")
    try:
        program = generator.program(seed)
    except Refused:
        return {"verdict": "invalid"}
    ways = cases_for(seed)
    if any(way.target for way in ways):
        # Some targets take fixed sizes only.
        program, sizes = generator.with_sizes(program)
        ways = [dataclasses.replace(way, sizes=sizes if way.target else ()) for way in ways]
    try:
        failures = comparison.failures(program.model, program.feeds, ways, stage=stage)
    except comparison.UnsteadyError:
        return {"verdict": "unsteady in onnxruntime"}
    findings = _findings(failures, program.model, program.feeds, known, stage)
    return {"verdict": "failed" if findings else "passed", "findings": findings}


def gradients(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """The gradient of one of the outputs of a seed's program; of one in three, the gradient of one of the results too.

    More programs find more than more outputs of each.
    """
    stage("original")
    try:
        made = generator.program(seed, smooth=True)
    except Refused:
        return {"verdict": "invalid"}
    made.model = onnx.inliner.inline_local_functions(made.model)
    del made.model.opset_import[1:]
    feeds = made.feeds[0]
    draw = random.Random(f"gradients {seed}")
    chosen = draw.choice(list(made.model.graph.output))
    del made.model.graph.output[:]
    made.model.graph.output.append(chosen)
    try:
        expected = run(made.model, feeds)
    except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
        return {"verdict": "invalid without functions"}
    if not comparison.fits(chosen, expected[0]):
        return {"verdict": "unlike what it declares"}  # a branch that is not taken declares other sizes

    def outcome(model: onnx.ModelProto) -> Outcome:
        inputs = [feeds[value.name] for value in model.graph.input]
        results = expected if model is made.model else run(model, feeds)
        return outcome_of(
            f"program {seed}", model, inputs, results, twice=not seed % 3, draw=random.Random(f"again {seed}")
        )

    stage("gradient")
    found = outcome(made.model)
    if found.kind != "wrong":
        return {"verdict": found.kind, "counts": {f"{found.kind}: {_unnumbered(found.reason)}": 1}}
    kind = _unnumbered(found.reason)[:60]
    files = {}
    if kind not in known:
        stage(f"original, being reduced after {kind}")

        def is_alike(model: onnx.ModelProto) -> bool:
            try:
                onnx.checker.check_model(model, full_check=True)
                again = outcome(model)
            except Exception:  # noqa: BLE001 (not valid, then)
                return False
            return again.kind == "wrong" and _unnumbered(again.reason)[:60] == kind

        files = _texts(reduced(made.model, feeds, is_alike, seconds=20), made.model, feeds)
    return {
        "verdict": "failed",
        "findings": [{"case": "gradient", "kind": kind, "detail": found.reason, "files": files}],
    }


def training(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """A training step of a seed's program."""
    stage("original")
    try:
        made = generator.program(seed, smooth=True)
        draw = random.Random(f"training {seed}")
        model, feeds = steps.prepared(made, draw)
        plan = steps.plan_of(model, feeds, draw, np.random.default_rng(seed))
    except Refused:
        return {"verdict": "invalid"}
    stage("training step")
    kind, detail = steps.outcome(model, feeds, plan)
    if kind in ("right", "no test", "refused"):
        return {"verdict": kind, "counts": {f"{kind}: {_unnumbered(detail)}": 1} if detail else {}}
    files = {}
    if kind not in known:
        stage(f"original, being reduced after {kind}")
        small = reduced(model, feeds, lambda candidate: steps.outcome(candidate, feeds, plan)[0] == kind, seconds=40)
        files = _texts(small, model, feeds)
    return {"verdict": "failed", "findings": [{"case": str(plan), "kind": kind, "detail": detail, "files": files}]}


def _unnumbered(reason: str) -> str:
    """A reason without the names and numbers of the program that it is about."""
    return re.sub(r"'[^']*'|\w*\d[\w.+-]*(, )?|[-\d.]+", "_", reason)


def cases_for(seed: int) -> list[Case]:
    """One way or two: a schedule, lowering to an opset or for a target, a session, or passes alone.

    More programs find more than more ways for each, and a way takes as long as making the program.
    """
    draw = random.Random(f"ways {seed}")  # other numbers than those that the program is made of
    ways = []
    for _ in range(draw.choice([1, 1, 1, 2])):
        match draw.choices(["optimize", "lower", "passes", "session", "target"], [4, 3, 2, 1, 2])[0]:
            case "optimize":
                way = Case(draw.choice(SCHEDULES))
            case "lower":
                newest = generator.newest_opset()
                way = Case(draw.choice(SCHEDULES), draw.choice([0, draw.randint(generator.OLDEST, newest)]))
            case "session":
                way = Case(session=True)
            case "passes":
                names = [step.name for step in loop_passes()] if draw.random() < 1 / 2 else list(keeping_passes())
                way = Case(passes=tuple(draw.choices(names, k=draw.choice([1, 2, 4, 12]))))
            case _:
                way = Case(draw.choice(["auto", "unroll"]), target=draw.choice(sorted(TARGETS)))
        ways.append(dataclasses.replace(way, verify_each=draw.random() < 1 / 6, sparse=draw.random() < 1 / 20))
    return ways


def damage(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """A damaged model through some of the entrances."""
    stage("original")
    return _faults(_damaged(seed), seed, stage)


def files(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """Another damaged file than a model."""
    name = random.Random(f"file {seed}").choice(sorted(other_files.ENTRANCES))
    return _faults(b"", seed, stage, {name: other_files.ENTRANCES[name]})


def _faults(data: bytes, seed: int, stage: Stage, entered: dict[str, Entrance] | None = None) -> dict[str, Any]:
    found = [
        {"case": name, "kind": f"{name}: {kind}" if kind in _PER_ENTRANCE else kind, "detail": detail}
        for name, kind, detail in entrances.faults(data, seed, stage, entered)
    ]
    findings = [finding | {"files": {".onnx": data.hex()}} for finding in found]
    return {"verdict": "failed" if findings else "passed", "findings": findings}


def _damaged(seed: int) -> bytes:
    """A damaged model; of four, one is made of a node test of onnx, in any of its forms."""
    draw = random.Random(f"node {seed}")
    if draw.random() > 1 / 4:
        return damaging.damaged(seed)
    _, model, _ = draw.choice(list(node_tests.forms(draw.choice(node_tests.names()))))
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for _ in range(draw.choice([1, 1, 2, 3])):
        damaging.damage_message(model, draw)
    return bytes(model.SerializePartialToString())


def inlined(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """The program of a seed in onnxruntime, functions inlined by onnx: what ends this process is no fault of ours."""
    stage("original, inlined")
    program = generator.program(seed)
    held = comparison.Truth(program.model, program.feeds).is_left_alone_inlined
    return {"verdict": "passed" if held else "failed", "grown": 0}


def alone(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """A damaged model in onnxruntime, as it is and lowered: what ends this process or fills its memory is not ours."""
    stage("original in onnxruntime")
    before = peak()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(_damaged(seed))
        feeds = random_feeds(load(model))
    except Exception:  # noqa: BLE001 (what does not come so far is for the entrances to judge)
        feeds = {}
    models = [model]
    with contextlib.suppress(Exception):
        models.append(ll.lower(model))
    for form, optimised in itertools.product(models, (True, False)):
        with contextlib.suppress(Exception):
            run(form, feeds, optimised=optimised)
    with contextlib.suppress(Exception):
        # With everything that `run` leaves out.
        ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return {"verdict": "passed", "grown": peak() - before}


def tensorflow(seed: int, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """The TensorFlow program of a seed, imported and run next to TensorFlow."""
    from tests.support.fuzz.tf_programs.work import answer

    return answer(seed, known, stage)


# Faults whose kind does not say where they are from.
_PER_ENTRANCE = ("slow", "memory", "files left behind", "model file changed")


def nodes(name: str, settings: dict[str, Any], known: list[str], stage: Stage) -> dict[str, Any]:
    """One of onnx's own node tests, in all forms."""
    findings = []
    counts = {}
    for form, model, feeds in node_tests.forms(name):
        stage(f"original {form}")
        cases = [Case("auto"), Case(opset=0)] if form == "published" else [Case("unroll" if "body" in form else "auto")]
        try:
            failures = comparison.failures(model, [feeds], cases, stage=stage)
        except Exception:  # noqa: BLE001 (onnxruntime's exceptions have no common base)
            counts[f"forms that onnxruntime does not run ({form})"] = 1
            continue
        counts[f"forms ({form})"] = 1
        named = [dataclasses.replace(failure, detail=f"{form}: {failure.detail}") for failure in failures]
        findings += _findings(named, model, [feeds], known, stage)
    return {"verdict": "failed" if findings else "passed", "findings": findings, "counts": counts}


def _findings(
    failures: list[Failure], model: onnx.ModelProto, feeds: list[dict[str, Any]], known: list[str], stage: Stage
) -> list[dict[str, Any]]:
    """Failures as the parent wants them; the first of each new kind with a small model."""
    findings = []
    seen = set(known)
    for failure in failures:
        files: dict[str, str] = {}
        if failure.kind not in seen:
            seen.add(failure.kind)
            stage(f"original, being reduced after {failure.case}: {failure.kind}")
            files = _files(failure, model, feeds)
        findings.append({"case": str(failure.case), "kind": failure.kind, "detail": failure.detail, "files": files})
    return findings


def _files(failure: Failure, model: onnx.ModelProto, feeds: list[dict[str, Any]]) -> dict[str, str]:
    number = re.search(r"feeds (\d+)", failure.detail)
    fed = feeds[int(number.group(1)) if number else 0]
    small = reduced(model, fed, lambda candidate: comparison.fails_alike(candidate, [fed], failure), seconds=12)
    return _texts(small, model, fed)


def _texts(small: onnx.ModelProto, model: onnx.ModelProto, fed: dict[str, Any]) -> dict[str, str]:
    held = io.BytesIO()
    np.savez(held, **fed)
    texts = {".onnx": small.SerializeToString(), ".full.onnx": model.SerializeToString(), ".npz": held.getvalue()}
    texts[".txt"] = onnx.printer.to_text(small).encode()
    return {name: text.hex() for name, text in texts.items()}
