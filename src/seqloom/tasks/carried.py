"""What goes from one window of a text to the next: truncated backpropagation through time.

    loss = sum over t of -log p(y_t given y_<t),   dh_t/dh_u = 0 where u is in a window before that of t

A recurrent decoder reads window k + 1 from its state after window k, which no gradient enters. A decoder whose state
grows with what it has read (a Transformer) begins every window anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from seqloom.batch import Window
from seqloom.models.contracts import Decoder, State
from seqloom.shapes import Tensor


@dataclass
class Carried:
    """States by the number of the window that is read from them.

    A window that is computed twice, because memory ran out, begins with the same state again: those of a step are kept
    until the next one. What a checkpoint holds is the state before the window to come.
    """

    step: int = 0
    states: dict[int, State] = field(default_factory=dict)

    def before(self, window: Window, decoder: Decoder, step: int) -> State:
        """The state to read a window from."""
        if step != self.step:
            self.step = step
            self.states = {number: state for number, state in self.states.items() if number == window.number}
        if not window.number or not decoder.carries:
            return decoder.start(None, len(window.rows))
        return self.states[window.number].select(window.rows)

    def after(self, window: Window, decoder: Decoder, state: State) -> None:
        """Keep the state of these rows for the next window."""
        if not decoder.carries:
            return
        following = window.number + 1
        if following not in self.states:
            first = torch.zeros(window.of, dtype=torch.long, device=window.rows.device)
            self.states[following] = state.select(first).detach().clone()
        for name, tensor in state.rows.items():
            self.states[following].rows[name][window.rows] = tensor.detach()

    def tensors(self) -> dict[str, Tensor]:
        """The state before the window to come, by its number; nothing before the first."""
        if not self.states:
            return {}
        number = max(self.states)
        return {f"{number}/{name}": tensor for name, tensor in self.states[number].rows.items()}

    def load(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from what `tensors` gave."""
        named = {tuple(name.split("/", 1)): tensor.to(device) for name, tensor in tensors.items()}
        self.states = {int(number): State({}) for number, _ in named}
        for (number, name), tensor in named.items():
            self.states[int(number)].rows[name] = tensor
