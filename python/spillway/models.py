"""A model in memory, for your own training loop."""

from __future__ import annotations

from . import _core
from ._core import Tensor
from .errors import UsageKeyError

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping


class Model(_core.Model):
    """A model in memory: a preset ("gpt2-124m"), a Hugging Face folder, org/name of the local cache, or a run folder.

    loss = model.loss(tokens)   # [B, T] token ids; the mean in nats over the next tokens
    loss.backward()
    optimizer.step()
    """

    def parameters(self) -> list[Tensor]:
        """All parameters, on the model's own memory (Tensor.name as in Hugging Face). Frozen ones have requires_grad False."""
        return [self._parameter(i) for i in range(len(self))]

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, self._parameter(i)) for i, name in enumerate(self.names()))

    def trained(self) -> list[Tensor]:
        """The parameters that are not frozen."""
        return [p for p in self.parameters() if p.requires_grad]

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters by name, on the model's own memory, without copies."""
        return dict(self.named_parameters())

    def load_state_dict(self, state: Mapping[str, Any], share: bool = False) -> None:
        """Loads every parameter from `state`, whose arrays have DLPack's protocol (such as a PyTorch module's state_dict()).

        share=True: from now on the model uses the memory of these arrays, so that its optimizers update them too; else values are copied.
        The second name of a tied head (lm_head.weight) and names that the model does not have are ignored.
        """
        missing = [name for name in self.names() if name not in state]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise UsageKeyError(f"load_state_dict: expected all parameters, but `state` has none named {', '.join(missing[:3])}{more}")
        for name in self.names():
            array = state[name]
            self._load(name, array.detach() if hasattr(array, "detach") else array, share)

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as transformers reads it from config.json."""
        import json

        return json.loads(self._config_json())
