"""A model in memory, for your own training loop."""

from __future__ import annotations

from . import _core
from ._core import Tensor
from .errors import UsageError, UsageTypeError
from .nn.module import check_names
from .nn.utils import clear

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, Optional


class Tokenizer(_core.Tokenizer):
    """Turns text into token ids and back, as the tokenizer of the same files in transformers does: Model.tokenizer, or Tokenizer(path)."""

    def __call__(self, text: Any, *, add_special_tokens: bool = True, return_tensors: Optional[str] = None) -> dict[str, Any]:
        """{"input_ids", "attention_mask"} of a text or a list of texts; with return_tensors ("pt" or "np", which give the same) as tensors
        [B, T], for which all texts must have equally many tokens."""
        if return_tensors not in (None, "pt", "np"):
            raise UsageError(f'return_tensors: expected None, "pt" or "np", got {return_tensors!r}')
        one = isinstance(text, str)
        rows = [self.encode(each, add_special_tokens) for each in ([text] if one else text)]
        masks = [[1] * len(row) for row in rows]
        if return_tensors is None:
            return {"input_ids": rows[0] if one else rows, "attention_mask": masks[0] if one else masks}
        if len({len(row) for row in rows}) > 1:
            raise UsageError(f"return_tensors: expected texts of equally many tokens, got {', '.join(str(len(row)) for row in rows[:5])}: there "
                             "is no padding here; give the texts one at a time, or cut them")
        return {"input_ids": _core.tensor(rows, dtype="int64"), "attention_mask": _core.tensor(masks, dtype="int64")}

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(row, skip_special_tokens) for row in (sequences.tolist() if hasattr(sequences, "tolist") else sequences)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageTypeError("[copy] expected an object that can be copied or pickled, got a Tokenizer: read it again from its files")


class Model(_core.Model):
    """A model in memory: a preset ("gpt2-124m"), a Hugging Face folder, org/name of the local cache, or a run folder.

    loss = model.loss(tokens)   # [B, T] token ids; the mean in nats over the next tokens
    loss.backward()
    optimizer.step()

    model(tokens) gives the logits of all positions, for losses of your own; model.generate(tokens) continues texts.
    """

    training = True

    def __call__(self, input_ids: Any, attention_mask: Any = None, **other: Any) -> Tensor:
        """The logits [B, T, V] of tokens[B, T], or [N, classes] of images, in the model's type and recorded for backward(). (loss() needs less
        memory, because it never holds all logits.) Dropout is on while `training` is True."""
        if other:
            raise UsageTypeError(f"Model: expected tokens only, got {', '.join(other)}: model.loss(tokens, targets) computes the loss, and the "
                                 "logits of model(tokens) are the result itself")
        if attention_mask is not None and not all(_flat(attention_mask)):
            raise UsageError("attention_mask: expected 1 everywhere, got zeros: give texts of equally many tokens, without padding")
        return self._forward(input_ids, self.training)

    forward = __call__

    def loss(self, input: Any, targets: Any = None, *, training: Optional[bool] = None) -> Tensor:
        """The mean loss in nats, one f64. The input is tokens[B, T], and targets[B, T] are by default the next tokens; negative targets do not
        contribute. Image models take images[N, C, H, W] and classes[N]. training=False turns dropout off, as eval() does."""
        return super().loss(input, targets, training=self.training if training is None else training)

    def generate(self, input_ids: Any, attention_mask: Any = None, *, max_new_tokens: int = 20, do_sample: bool = False,
                 temperature: float = 1.0, top_k: int = 50, top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0,
                 eos_token_id: Any = None, pad_token_id: Optional[int] = None, seed: Optional[int] = None) -> Tensor:
        """tokens[B, T] and up to max_new_tokens behind them, int64, with the names and defaults of transformers: the most likely token each
        time, or with do_sample=True one that is drawn. A row ends behind eos_token_id (by default the model's; [] for none) and is filled up
        with pad_token_id. seed: by default the next one of manual_seed()."""
        if attention_mask is not None and not all(_flat(attention_mask)):
            raise UsageError("attention_mask: expected 1 everywhere, got zeros: give texts of equally many tokens, without padding")
        if do_sample and not temperature > 0:
            raise UsageError(f"temperature: expected a number above 0, got {temperature}: do_sample=False takes the most likely token")
        ends = [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
        if seed is None:
            seed = _core._next_seed() if do_sample else 0
        return self._generate(input_ids, max_new_tokens, temperature if do_sample else 0.0, top_k if do_sample else 0,
                              top_p if do_sample else 1.0, min_p if do_sample else 0.0, repetition_penalty, seed, ends, pad_token_id)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's folder; without one, of a model that was made here, its bytes."""
        found = vars(self).get("_own_tokenizer")
        if found is None:
            found = self._own_tokenizer = Tokenizer(self._tokenizer())
        return found

    def train(self, mode: bool = True) -> Model:
        """Sets `training`, which turns dropout on or off."""
        if not isinstance(mode, bool):
            raise UsageTypeError(f"mode: expected a bool, got {type(mode).__name__}")
        self.training = mode
        return self

    def eval(self) -> Model:
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears all gradients: they become None."""
        clear((), set_to_none)
        super().zero_grad()

    def requires_grad_(self, requires_grad: bool = True) -> Model:
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

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

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, *, share: bool = False) -> tuple[list[str], list[str]]:
        """Loads parameters from `state`, whose arrays have DLPack's protocol (such as a PyTorch module's state_dict()). Returns the names that
        were missing and those that were not expected; strict=True refuses the missing ones.

        share=True: from now on the model uses the memory of these arrays, so that its optimizers update them too; else values are copied.
        The second name of a tied head (lm_head.weight) and names that the model does not have are ignored.
        """
        missing, unexpected = check_names("Model", self.names(), state, False)
        if strict and missing:
            check_names("Model", self.names(), {name: None for name in state if name not in unexpected}, True)
        for name in self.names():
            if name in missing:
                continue
            array = state[name]
            self._load(name, array.detach() if hasattr(array, "detach") else array, share)
        return missing, unexpected

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, as transformers reads it from config.json."""
        import json

        return json.loads(self._config_json())


def _flat(values: Any) -> list[Any]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    return [each for one in listed for each in (_flat(one) if isinstance(one, (list, tuple)) else [one])]
