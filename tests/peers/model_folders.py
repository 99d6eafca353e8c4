"""What transformers makes of model folders that say one thing in two ways. Writes tests/data/folders/reference_f64.safetensors, which
tests/models/folder_model_test.cc reads: runs in fp64 of the small folders of tests/data, changed as follows.

  untied/…   llama-tiny and gpt2-tiny with `tie_word_embeddings` beside an lm_head.weight of its own: logits of the last position
  swapped/…  llama-tiny tied, with an lm_head.weight and no embedding: the same
  padding/…  each family with `pad_token_id` 5, a token that is among the inputs: loss, and two rows of the embedding's gradient
  router/…   mixtures of experts with `output_router_logits` and rows of which some are padded (attention_mask): loss, router loss, gradients

And adapter_model.bin beside it: the adapter of tests/data/lora/llama-qv as torch.save writes it, with names behind wrappers.

    python tests/peers/model_folders.py

Needs torch, transformers and safetensors. Exit status 1 where transformers does not do what the names say.
"""
import contextlib
import json
import pathlib
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
PAD, OTHER = 5, 7
FAMILIES = ["llama-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "qwen3-moe-tiny", "mixtral-tiny", "gemma2-tiny", "gemma3-text-tiny",
            "phi3-tiny", "olmo2-tiny", "gpt2-tiny"]
transformers.utils.logging.disable_progress_bar()
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)


@contextlib.contextmanager
def everything_float64():
    """Model code that widens to float32 (norms, softmax, the router loss) widens to float64 instead."""
    before = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = before


def load(name, config=None, tensors=None):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        said = json.loads((DATA / name / "config.json").read_text())
        said.update(config or {})
        for key in ("attention_dropout", "attn_pdrop", "embd_pdrop", "resid_pdrop"):
            if key in said:
                said[key] = 0.0
        (folder / "config.json").write_text(json.dumps(said))
        if tensors is None:
            shutil.copy(DATA / name / "model.safetensors", folder)
        else:
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                                                  experts_implementation="eager")
    if hasattr(model.base_model, "rotary_emb"):  # whose wavelengths are float32
        with everything_float64():
            model.base_model.rotary_emb = type(model.base_model.rotary_emb)(config=model.config)
    return model


def run(model, *args, **more):
    with everything_float64():
        out = model(*args, **more)
        if out.loss is not None:
            out.loss.backward()
    return out


def inputs(vocabulary, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(8, vocabulary, (2, 12), generator=generator)
    ids[0, 3] = ids[0, 8] = ids[1, 0] = PAD
    ids[0, 5] = ids[1, 2] = OTHER
    return ids


def heads(out):
    ids = inputs(90, 1)
    out["heads/input_ids"] = ids
    tensors = load_file(DATA / "llama-tiny" / "model.safetensors")
    assert "lm_head.weight" in tensors
    model = load("llama-tiny", {"tie_word_embeddings": True}, tensors)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    out["untied/llama/logits"] = run(model, ids).logits[:, -1].detach()
    equal = dict(tensors, **{"lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    model = load("llama-tiny", {"tie_word_embeddings": True}, equal)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    del tensors["model.embed_tokens.weight"]
    model = load("llama-tiny", {"tie_word_embeddings": True}, tensors)
    assert torch.equal(model.model.embed_tokens.weight, tensors["lm_head.weight"].double())
    out["swapped/llama/logits"] = run(model, ids).logits[:, -1].detach()

    tensors = load_file(DATA / "gpt2-tiny" / "model.safetensors")
    head = torch.randn(tensors["transformer.wte.weight"].shape, generator=torch.Generator().manual_seed(2)) * 0.3
    model = load("gpt2-tiny", {}, dict(tensors, **{"lm_head.weight": head}))
    assert torch.equal(model.lm_head.weight, head.double())
    out["untied/gpt2/lm_head"] = head
    out["untied/gpt2/logits"] = run(model, ids).logits[:, -1].detach()


def padding(out):
    for name in FAMILIES:
        model = load(name, {"pad_token_id": PAD}).train()
        ids = inputs(model.config.vocab_size, 3)
        loss = run(model, ids, labels=ids).loss
        gradient = model.get_input_embeddings().weight.grad
        assert model.get_input_embeddings().padding_idx == (None if name == "gpt2-tiny" else PAD)
        out[f"padding/{name}/input_ids"] = ids
        out[f"padding/{name}/loss"] = loss.detach().reshape(1)
        out[f"padding/{name}/pad_row"] = gradient[PAD].clone()
        out[f"padding/{name}/other_row"] = gradient[OTHER].clone()


def router(out):
    for name in ("mixtral-tiny", "qwen3-moe-tiny"):
        model = load(name, {"output_router_logits": True, "router_aux_loss_coef": 0.5, "pad_token_id": None}).train()
        ids = inputs(model.config.vocab_size, 4)
        mask = torch.ones_like(ids)
        mask[0, 9:] = mask[1, 5:] = 0
        ids = torch.where(mask == 1, ids, 0)
        labels = torch.where(mask == 1, ids, -100)
        labels[1, :3] = -100  # of tokens that are no padding
        with torch.no_grad(), everything_float64():
            unmasked = model(ids, labels=labels).aux_loss
        result = run(model, ids, attention_mask=mask, labels=labels)
        assert abs(unmasked - result.aux_loss) > 1e-3
        for key, value in (("input_ids", ids), ("mask", mask), ("labels", labels), ("loss", result.loss.detach().reshape(1)),
                           ("aux_loss", result.aux_loss.detach().reshape(1))):
            out[f"router/{name}/{key}"] = value
        for layer, block in enumerate(model.model.layers):
            gate = (block.block_sparse_moe if hasattr(block, "block_sparse_moe") else block.mlp).gate
            out[f"router/{name}/grad/{layer}"] = gate.weight.grad.clone()


def wrapped(name):
    """As a program saves it that checkpoints activations and runs torch.compile."""
    return "_orig_mod." + name.replace("self_attn", "_checkpoint_wrapped_module.self_attn")


if __name__ == "__main__":
    out = {}
    heads(out)
    padding(out)
    router(out)
    (DATA / "folders").mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in sorted(out.items())}, DATA / "folders" / "reference_f64.safetensors")
    adapter = load_file(DATA / "lora" / "llama-qv" / "adapter_model.safetensors")
    torch.save({wrapped(name): tensor for name, tensor in adapter.items()}, DATA / "folders" / "adapter_model.bin")
    print(len(out), "tensors of transformers", transformers.__version__)
