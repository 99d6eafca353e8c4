"""A model in memory, for a training loop of one's own."""

from __future__ import annotations

from . import _core
from ._core import Tensor
from .errors import UsageKeyError

TYPE_CHECKING = False  # without the time that importing typing takes
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping


class Model(_core.Model):
    """A preset ("gpt2-124m"), a Hugging Face folder, org/name of the local cache, or a run's folder, in memory.

    loss = model.loss(tokens)   # [B, T] token ids; the mean in nats over the next tokens
    loss.backward()
    optimizer.step()
    """

    def parameters(self) -> list[Tensor]:
        """All, each the model's own memory (Tensor.name is Hugging Face's). Frozen ones have requires_grad False."""
        return [self._parameter(i) for i in range(len(self))]

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, self._parameter(i)) for i, name in enumerate(self.names()))

    def trained(self) -> list[Tensor]:
        """Those that are not frozen."""
        return [p for p in self.parameters() if p.requires_grad]

    def state_dict(self) -> dict[str, Tensor]:
        """All by name: the model's own memory, no copies."""
        return dict(self.named_parameters())

    def load_state_dict(self, state: Mapping[str, Any], share: bool = False) -> None:
        """Takes every parameter from `state`, arrays with DLPack's protocol (a PyTorch module's state_dict()).

        share: the model lies in these arrays' memory from now on, so that its optimizers move them too; else values are copied.
        Of a tied head's second name (lm_head.weight) and of what the model does not have nothing is read.
        """
        missing = [name for name in self.names() if name not in state]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise UsageKeyError(f"load_state_dict: expected all parameters, got none named {', '.join(missing[:3])}{more}")
        for name in self.names():
            array = state[name]
            self._load(name, array.detach() if hasattr(array, "detach") else array, share)

    @property
    def config(self) -> dict[str, Any]:
        """config.json, as transformers reads it."""
        import json

        return json.loads(self._config_json())
