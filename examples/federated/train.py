"""Federated averaging (McMahan et al., 2017): clients train on data of their own, and share weights only.

Each of five clients has four of the ten digits. In each round it takes a few steps of its own from the shared weights;
the new shared weights are the mean of the clients', weighted by their numbers of digits. Optimizer state stays where it
is. A client is a plain `ll.Trainer`.

Usage: python examples/federated/train.py [--out DIR] [--rounds 40]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx

import lstm_lower as ll
from lstm_lower.pictures import BLUE, PALE, picture

HERE = Path(__file__).parent
CLASSIFIER = HERE.parent / "onnx_saliency" / "digits.onnx"
sys.path.insert(0, str(HERE.parent / "keras_digits"))

from data import Set, digits  # noqa: E402 (beside the other example)

CLIENTS, CLASSES, LOCAL_STEPS, BATCH = 5, 4, 10, 32


class Client:
    """A trainer with data that nobody else sees."""

    def __init__(self, step: onnx.ModelProto, first: dict[str, np.ndarray], data: Set, seed: int) -> None:
        self.trainer = ll.Trainer(step, initial_values=first)
        self.weights = [pair.input for pair in self.trainer.state.pairs if pair.role == "weight"]
        self.data = data
        self._random = np.random.default_rng(seed)

    def train(self, steps: int) -> float:
        """Takes some steps, and returns their mean loss."""
        x, y = self.data
        losses = []
        for _ in range(steps):
            rows = self._random.choice(len(y), BATCH, replace=False)
            losses.append(self.trainer.step({"image": x[rows], "target": y[rows]}).loss)
        return float(np.mean(losses))

    def send(self) -> dict[str, np.ndarray]:
        """The weights, which are all that leaves the client."""
        state = self.trainer.state_dict()
        return {name: state[name] for name in self.weights}

    def receive(self, weights: dict[str, np.ndarray]) -> None:
        """Puts shared weights in place of its own."""
        self.trainer.load_state_dict(self.trainer.state_dict() | weights)

    def accuracy(self, data: Set) -> float:
        """The share of digits that it knows."""
        scores = self.trainer.predict({"image": data[0]})["scores"]
        return float((scores.argmax(-1) == data[1]).mean())


def clients_of(data: Set) -> list[Client]:
    """Clients with four digits each, every digit with two of them."""
    images, labels = data
    step = ll.lower(ll.from_onnx(CLASSIFIER, "cross_entropy", "adam"))
    # The file's weights know all digits already; clients begin with others, all with the same.
    random = np.random.default_rng(0)
    known = ll.Trainer(step)
    state, weights = known.state_dict(), [pair.input for pair in known.state.pairs if pair.role == "weight"]
    first = {name: 0.1 * random.standard_normal(state[name].shape, np.float32) for name in weights}
    clients = []
    for number in range(CLIENTS):
        mine = np.isin(labels, [(2 * number + k) % 10 for k in range(CLASSES)])
        clients.append(Client(step, first, (images[mine], labels[mine]), number))
    return clients


def averaged(clients: list[Client]) -> dict[str, np.ndarray]:
    """The mean of the clients' weights."""
    total = sum(len(client.data[1]) for client in clients)
    sent = [(len(client.data[1]) / total, client.send()) for client in clients]
    return {name: sum(share * weights[name] for share, weights in sent) for name in sent[0][1]}


def main() -> None:
    """Trains together and alone, and draws how many of all digits either way of training learns to know."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    train, test = ((x[:, None], y) for x, y in digits())
    together, alone = clients_of(train), clients_of(train)
    losses, shared, own = [], [], []
    for _ in range(options.rounds):
        losses.append(np.mean([client.train(LOCAL_STEPS) for client in together]))
        weights = averaged(together)
        for client in together:
            client.receive(weights)
        shared.append(together[0].accuracy(test))
        for client in alone:
            client.train(LOCAL_STEPS)
        own.append([client.accuracy(test) for client in alone])
    print(f"{options.rounds} rounds: loss of the clients {losses[0]:.3f} to {losses[-1]:.3f}")
    print(f"accuracy on all digits: averaged {shared[-1]:.3f}, alone {min(own[-1]):.3f} to {max(own[-1]):.3f}")

    options.out.mkdir(parents=True, exist_ok=True)
    with picture(options.out / "federated.svg", height=3) as figure:
        left, right = figure.subplots(1, 2)
        left.plot(losses)
        left.set(title="mean loss of the clients on their own digits", xlabel="round", yscale="log")
        right.plot(own, color=PALE, label=["each alone", *["_"] * (CLIENTS - 1)])
        right.plot(shared, color=BLUE, label="averaged")
        right.set(title="accuracy on all ten digits", xlabel="round", ylim=(0, 1))
        right.legend(loc="upper left")


if __name__ == "__main__":
    main()
